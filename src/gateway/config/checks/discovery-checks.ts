/** Checks combinations of discovery settings. */
import type { Finding } from './checks.ts'
import type { FileForm } from '../schema/schema.ts'

type DiscoveryForm = FileForm['discovery']

/** True if discovery can find workers of this role. */
export function findsWorkers({ file, dns, kubernetes }: DiscoveryForm, role: 'prefill' | 'decode'): boolean {
  return file !== undefined || dns?.[role] !== undefined || kubernetes?.enabled === true
}

export function* checkDiscovery({ dns, kubernetes }: DiscoveryForm): Generator<Finding> {
  if (dns !== undefined && dns.prefill === undefined && dns.decode === undefined)
    yield {
      path: ['discovery', 'dns'],
      about: [
        ['discovery', 'dns', 'prefill'],
        ['discovery', 'dns', 'decode'],
      ],
      text: 'discovery.dns has no name to look up: set discovery.dns.prefill (--dns-prefill) or discovery.dns.decode (--dns-decode)',
    }
  if (kubernetes === undefined) return
  const { enabled, prefillSelector, decodeSelector, apiUrl, tokenFile } = kubernetes
  const at = (key: string) => ['discovery', 'kubernetes', key]
  if (!enabled) {
    yield {
      path: at('enabled'),
      text: 'discovery.kubernetes is ignored: set discovery.kubernetes.enabled (--service-discovery)',
      warning: true,
    }
    return
  }
  for (const [key, flag, labels] of [
    ['prefillSelector', '--prefill-selector', prefillSelector],
    ['decodeSelector', '--decode-selector', decodeSelector],
  ] as const)
    if (labels.length === 0)
      yield {
        path: at(key),
        about: [at('enabled')],
        text: `discovery.kubernetes.${key} is missing: set the labels of the EndpointSlices (${flag} app=vllm role=…)`,
      }
  for (const [key, labels] of [
    ['prefillSelector', prefillSelector],
    ['decodeSelector', decodeSelector],
  ] as const) {
    const keys = labels.map(label => label.split('=', 1)[0]!)
    const twice = keys.find((name, place) => keys.indexOf(name) < place)
    if (twice !== undefined && new Set(labels.filter(label => label.startsWith(`${twice}=`))).size > 1)
      yield {
        path: at(key),
        text: `discovery.kubernetes.${key} requires two values of ${twice}: no EndpointSlice has both`,
      }
  }
  if (prefillSelector.length > 0 && prefillSelector.toSorted().join() === decodeSelector.toSorted().join())
    yield {
      path: at('decodeSelector'),
      about: [at('prefillSelector')],
      text: 'discovery.kubernetes.decodeSelector equals prefillSelector: a worker cannot have both roles',
    }
  if (
    apiUrl?.startsWith('http:') &&
    tokenFile !== undefined &&
    !/^http:\/\/(localhost|127\.|\[::1\])/.test(apiUrl)
  )
    yield {
      path: at('apiUrl'),
      text: 'discovery.kubernetes.apiUrl is not https: the token is sent unencrypted',
      warning: true,
    }
}
