/** Looks up a DNS name: its addresses, or its SRV records and the addresses of their targets. */
import type { Resolver } from 'node:dns/promises'
import { isIPv6 } from 'node:net'
import type { Role } from '../../cluster/worker.ts'
import type { DnsTarget } from '../config/dns-target.ts'
import { workerName } from '../config/worker-id.ts'
import { type DiscoveredWorker, LookupFailure } from './source.ts'

export type Lookups = Pick<Resolver, 'resolve4' | 'resolve6' | 'resolveSrv'>
export type Family = 'auto' | 'ipv4' | 'ipv6'

export interface LookupResult {
  readonly found: readonly DiscoveredWorker[]
  /** SRV targets without an address. */
  readonly notes: readonly string[]
  /** Infinity if the records have no TTL. */
  readonly ttlSeconds: number
}

interface Addresses {
  readonly addresses: readonly string[]
  readonly ttlSeconds: number
}

/** Throws a LookupFailure if the lookup fails or finds nothing. */
export async function lookUp(
  dns: Lookups,
  target: DnsTarget,
  family: Family,
  role: Role,
): Promise<LookupResult> {
  const result =
    target.kind === 'srv'
      ? await services(dns, target, family, role)
      : await addresses(dns, target, family, role)
  if (result.found.length === 0) throw new LookupFailure('empty', `${target.name} has no address`)
  return result
}

async function addresses(
  dns: Lookups,
  { name, protocol, port }: DnsTarget,
  family: Family,
  role: Role,
): Promise<LookupResult> {
  const { addresses, ttlSeconds } = await addressesOf(dns, name, family)
  return {
    found: [...new Set(addresses)].map(address => workerAt(protocol, address, port!, role)),
    notes: [],
    ttlSeconds,
  }
}

/** Ignores SRV priorities and weights: the routing policy balances the load. */
async function services(
  dns: Lookups,
  { name, protocol }: DnsTarget,
  family: Family,
  role: Role,
): Promise<LookupResult> {
  const records = await query(name, 'SRV', () => dns.resolveSrv(name))
  const targets = new Map(
    records
      .filter(record => !['', '.'].includes(record.name))
      .map(record => [`${record.name.replace(/\.$/, '').toLowerCase()}:${record.port}`, record]),
  )
  const notes: string[] = []
  let ttlSeconds = Infinity
  const found = await Promise.all(
    [...targets].map(async ([id, record]) => {
      const lookup = await addressesOf(dns, record.name, family).catch((error: unknown) => {
        if (!(error instanceof LookupFailure && error.problem.reason === 'empty')) throw error
        notes.push(`${record.name} (target of ${name}) has no address: skipped`)
      })
      // Several addresses belong to one worker: use the first in sort order, so that it is always the same.
      const [address] = lookup?.addresses.toSorted() ?? []
      ttlSeconds = Math.min(ttlSeconds, lookup?.ttlSeconds ?? Infinity)
      return address === undefined
        ? []
        : [{ ...workerAt(protocol, address, record.port, role), id: workerName(id) }]
    }),
  )
  return { found: found.flat(), notes: notes.toSorted(), ttlSeconds }
}

function workerAt(protocol: string, address: string, port: number, role: Role): DiscoveredWorker {
  const host = isIPv6(address) ? `[${address}]` : address
  // The id always includes the port, as for configured workers.
  return { id: `${host}:${port}`, role, url: new URL(`${protocol}//${host}:${port}`).origin, ready: true }
}

/** Uses one address family only, so that a worker with both is not counted twice. */
async function addressesOf(dns: Lookups, name: string, family: Family): Promise<Addresses> {
  if (family === 'ipv6')
    return withShortestTtl(await query(name, 'AAAA', () => dns.resolve6(name, { ttl: true })))
  const ipv4 = await query(name, 'A', () => dns.resolve4(name, { ttl: true }), family === 'auto')
  if (ipv4.length > 0) return withShortestTtl(ipv4)
  return withShortestTtl(await query(name, 'A or AAAA', () => dns.resolve6(name, { ttl: true })))
}

function withShortestTtl(records: readonly { readonly address: string; readonly ttl: number }[]): Addresses {
  return {
    addresses: records.map(({ address }) => address),
    ttlSeconds: records.reduce((min, { ttl }) => Math.min(min, ttl), Infinity),
  }
}

/** `orNone`: return an empty list if the name has no such records. */
async function query<RecordType>(
  name: string,
  kind: string,
  ask: () => Promise<RecordType[]>,
  orNone = false,
): Promise<RecordType[]> {
  try {
    return await ask()
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code ?? 'unknown'
    if (code === 'ENODATA' && orNone) return []
    if (code === 'ENODATA') throw new LookupFailure('empty', `${name} has no ${kind} records`, cause)
    if (code === 'ENOTFOUND') throw new LookupFailure('empty', `${name} does not exist (NXDOMAIN)`, cause)
    if (['ETIMEOUT', 'ECONNREFUSED'].includes(code))
      throw new LookupFailure('unreachable', `no response from a DNS server for ${name} (${code})`, cause)
    throw new LookupFailure('failed', `DNS lookup of ${name} failed (${code})`, cause)
  }
}
