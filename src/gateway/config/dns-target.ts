/** Targets of DNS discovery: the name, the record type and the protocol of the workers. */
import { isIP } from 'node:net'

export interface DnsTarget {
  readonly name: string
  readonly kind: 'address' | 'srv'
  readonly protocol: 'http:' | 'https:'
  /** Undefined for SRV, whose records have ports. */
  readonly port?: number
}

export const DNS_EXAMPLE =
  'http://decode.llm.svc.cluster.local:8000 or srv://_http._tcp.decode.llm.svc.cluster.local'

const SCHEMES: Readonly<Record<string, Pick<DnsTarget, 'kind' | 'protocol'>>> = {
  'http:': { kind: 'address', protocol: 'http:' },
  'https:': { kind: 'address', protocol: 'https:' },
  'srv:': { kind: 'srv', protocol: 'http:' },
  'srv+https:': { kind: 'srv', protocol: 'https:' },
}

/** DNS labels. Those of SRV names begin with an underscore. */
const NAME = /^(?=.{1,253}$)[\w](?:[\w-]{0,62})(?:\.[\w](?:[\w-]{0,62}))*\.?$/

/** Why a text is not a DNS target; undefined if it is one. */
export function dnsTargetProblem(text: string): string | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined
  const scheme = url && (Object.hasOwn(SCHEMES, url.protocol) ? SCHEMES[url.protocol] : undefined)
  // A URL parser accepts decode.llm:8000 as a URL with the scheme decode.llm.
  if (url === undefined || scheme === undefined) {
    const found =
      url === undefined || url.host === '' ? '' : `, found the scheme ${url.protocol.slice(0, -1)}`
    return `expected a name to look up such as ${DNS_EXAMPLE}${found}`
  }
  if (url.username !== '' || url.password !== '') return 'expected no user or password in it'
  if (!['', '/'].includes(url.pathname) || url.search !== '' || url.hash !== '')
    return 'expected no path after the name'
  if (scheme.kind === 'srv' && url.port !== '') return 'expected no port: SRV records have their own'
  const name = url.hostname
  if (isIP(name.replaceAll(/[[\]]/g, '')) !== 0) return `${name} is an IP address: list it under workers`
  return NAME.test(name) ? undefined : 'expected a valid DNS name'
}

/** Parses a valid target. */
export function dnsTargetOf(text: string): DnsTarget {
  const { protocol, hostname, port } = new URL(text)
  const scheme = SCHEMES[protocol]!
  const defaultPort = scheme.protocol === 'https:' ? 443 : 80
  return {
    ...scheme,
    name: hostname,
    port: scheme.kind === 'srv' ? undefined : port === '' ? defaultPort : Number(port),
  }
}

/** True for an IP address with or without a port. */
export function isDnsServer(text: string): boolean {
  const [, ipv4, ipv6, port = '53'] = /^(?:([\d.]+)|\[([\da-fA-F:]+)\])(?::(\d{1,5}))?$/.exec(text) ?? []
  return isIP(ipv4 ?? ipv6 ?? '') !== 0 && Number(port) >= 1 && Number(port) <= 65_535
}
