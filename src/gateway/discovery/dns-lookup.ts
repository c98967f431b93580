/** One look at a name in DNS: its addresses, or its SRV records and theirs. */
import type { Resolver } from 'node:dns/promises'
import { isIPv6 } from 'node:net'
import type { Role } from '../../cluster/worker.ts'
import type { DnsTarget } from '../config/dns-target.ts'
import { workerName } from '../config/worker-id.ts'
import { type DiscoveredWorker, LookupFailure } from './source.ts'

export type Lookups = Pick<Resolver, 'resolve4' | 'resolve6' | 'resolveSrv'>
export type Family = 'auto' | 'ipv4' | 'ipv6'

export interface LookedUp {
  readonly found: readonly DiscoveredWorker[]
  /** Targets of SRV records that have no address. */
  readonly notes: readonly string[]
  /** How long the records hold; infinite where nothing says so. */
  readonly ttlSeconds: number
}

interface Addresses {
  readonly addresses: readonly string[]
  readonly ttlSeconds: number
}

/** Throws a LookupFailure where there is no answer, or an empty one. */
export async function lookUp(dns: Lookups, target: DnsTarget, family: Family, role: Role): Promise<LookedUp> {
  const looked =
    target.kind === 'srv'
      ? await services(dns, target, family, role)
      : await addresses(dns, target, family, role)
  if (looked.found.length === 0) throw new LookupFailure('empty', `${target.name} has no address`)
  return looked
}

async function addresses(
  dns: Lookups,
  { name, protocol, port }: DnsTarget,
  family: Family,
  role: Role,
): Promise<LookedUp> {
  const { addresses, ttlSeconds } = await addressesOf(dns, name, family)
  return {
    found: [...new Set(addresses)].map(address => workerAt(protocol, address, port!, role)),
    notes: [],
    ttlSeconds,
  }
}

/** Priorities and weights are not looked at: how requests are spread is up to the policy. */
async function services(
  dns: Lookups,
  { name, protocol }: DnsTarget,
  family: Family,
  role: Role,
): Promise<LookedUp> {
  const records = await asked(name, 'SRV', () => dns.resolveSrv(name))
  const targets = new Map(
    records
      .filter(record => !['', '.'].includes(record.name))
      .map(record => [`${record.name.replace(/\.$/, '').toLowerCase()}:${record.port}`, record]),
  )
  const notes: string[] = []
  let ttlSeconds = Infinity
  const found = await Promise.all(
    [...targets].map(async ([id, record]) => {
      const looked = await addressesOf(dns, record.name, family).catch((error: unknown) => {
        if (!(error instanceof LookupFailure && error.problem.reason === 'empty')) throw error
        notes.push(`${record.name}, which ${name} points to, has no address: left out`)
      })
      // One of several, always the same: they are of one worker.
      const [address] = looked?.addresses.toSorted() ?? []
      ttlSeconds = Math.min(ttlSeconds, looked?.ttlSeconds ?? Infinity)
      return address === undefined
        ? []
        : [{ ...workerAt(protocol, address, record.port, role), id: workerName(id) }]
    }),
  )
  return { found: found.flat(), notes: notes.toSorted(), ttlSeconds }
}

function workerAt(protocol: string, address: string, port: number, role: Role): DiscoveredWorker {
  const host = isIPv6(address) ? `[${address}]` : address
  // With the port always, as workers of the configuration are named.
  return { id: `${host}:${port}`, role, url: new URL(`${protocol}//${host}:${port}`).origin, ready: true }
}

/** A worker of a cluster with both families must not be taken for two. */
async function addressesOf(dns: Lookups, name: string, family: Family): Promise<Addresses> {
  if (family === 'ipv6') return shortest(await asked(name, 'AAAA', () => dns.resolve6(name, { ttl: true })))
  const ipv4 = await asked(name, 'A', () => dns.resolve4(name, { ttl: true }), family === 'auto')
  if (ipv4.length > 0) return shortest(ipv4)
  return shortest(await asked(name, 'A or AAAA', () => dns.resolve6(name, { ttl: true })))
}

function shortest(records: readonly { readonly address: string; readonly ttl: number }[]): Addresses {
  return {
    addresses: records.map(({ address }) => address),
    ttlSeconds: records.reduce((least, { ttl }) => Math.min(least, ttl), Infinity),
  }
}

/** `orNone`: that the name has no such records is an answer too. */
async function asked<Answer>(
  name: string,
  kind: string,
  ask: () => Promise<Answer[]>,
  orNone = false,
): Promise<Answer[]> {
  try {
    return await ask()
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code ?? 'unknown'
    if (code === 'ENODATA' && orNone) return []
    if (code === 'ENODATA') throw new LookupFailure('empty', `${name} has no ${kind} records`, cause)
    if (code === 'ENOTFOUND') throw new LookupFailure('empty', `${name} does not exist (NXDOMAIN)`, cause)
    if (['ETIMEOUT', 'ECONNREFUSED'].includes(code))
      throw new LookupFailure('unreachable', `no DNS server answers for ${name} (${code})`, cause)
    throw new LookupFailure('failed', `the DNS server cannot answer for ${name} (${code})`, cause)
  }
}
