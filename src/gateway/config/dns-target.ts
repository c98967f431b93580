/** What discovery looks up in DNS: the name of a service, how to ask for it, and how its workers are spoken to. */
import { isIP } from 'node:net'

export interface DnsTarget {
  readonly name: string
  readonly kind: 'address' | 'srv'
  readonly protocol: 'http:' | 'https:'
  /** SRV records have their own. */
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

/** One label after the other; those of SRV begin with an underscore. */
const NAME = /^(?=.{1,253}$)[\w](?:[\w-]{0,62})(?:\.[\w](?:[\w-]{0,62}))*\.?$/

/** What is wrong with a text as one; undefined when nothing. */
export function wrongDnsTarget(text: string): string | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined
  const scheme = url && (Object.hasOwn(SCHEMES, url.protocol) ? SCHEMES[url.protocol] : undefined)
  // decode.llm:8000 is a URL too, of the scheme decode.llm.
  if (url === undefined || scheme === undefined) {
    const found =
      url === undefined || url.host === '' ? '' : `, found the scheme ${url.protocol.slice(0, -1)}`
    return `expected a name to look up such as ${DNS_EXAMPLE}${found}`
  }
  if (url.username !== '' || url.password !== '') return 'expected no user and no password in it'
  if (!['', '/'].includes(url.pathname) || url.search !== '' || url.hash !== '')
    return 'expected no path behind the name'
  if (scheme.kind === 'srv' && url.port !== '') return 'expected no port: SRV records bring their own'
  const name = url.hostname
  if (isIP(name.replaceAll(/[[\]]/g, '')) !== 0) return `${name} is an address already: name it under workers`
  return NAME.test(name) ? undefined : 'expected the name of a service in DNS'
}

/** Of a text that nothing is wrong with. */
export function dnsTargetOf(text: string): DnsTarget {
  const { protocol, hostname, port } = new URL(text)
  const scheme = SCHEMES[protocol]!
  const usual = scheme.protocol === 'https:' ? 443 : 80
  return {
    ...scheme,
    name: hostname,
    ...(scheme.kind === 'address' && { port: port === '' ? usual : Number(port) }),
  }
}

/** Of a server to ask: its address, with a port or without. */
export function isDnsServer(text: string): boolean {
  const [, ipv4, ipv6, port = '53'] = /^(?:([\d.]+)|\[([\da-fA-F:]+)\])(?::(\d{1,5}))?$/.exec(text) ?? []
  return isIP(ipv4 ?? ipv6 ?? '') !== 0 && Number(port) >= 1 && Number(port) <= 65_535
}
