import { describe, expect, it } from 'vitest'
import { dnsTargetOf } from '../config/dns-target.ts'
import { type Family, type Lookups, lookUp } from './dns-lookup.ts'
import { LookupFailure } from './source.ts'

type Zone = Readonly<
  Record<string, { readonly [type in 'A' | 'AAAA' | 'SRV']?: readonly unknown[] | string }>
>

/** A string in place of records is an error code. */
function zone(records: Zone): Lookups {
  const ask = (type: 'A' | 'AAAA' | 'SRV') => async (name: string) => {
    const found = records[name] === undefined ? 'ENOTFOUND' : (records[name][type] ?? 'ENODATA')
    if (typeof found === 'string') throw Object.assign(new Error(found), { code: found })
    return found
  }
  return { resolve4: ask('A'), resolve6: ask('AAAA'), resolveSrv: ask('SRV') } as unknown as Lookups
}
const record = (address: string, ttl = 30) => ({ address, ttl })
const look = (records: Zone, text = 'http://d.svc:8000', family: Family = 'auto') =>
  lookUp(zone(records), dnsTargetOf(text), family, 'decode')
const ids = async (...asked: Parameters<typeof look>) => (await look(...asked)).found.map(({ id }) => id)
const problem = async (...asked: Parameters<typeof look>) =>
  ((await look(...asked).catch((error: unknown) => error)) as LookupFailure).problem

const BOTH = { 'd.svc': { A: [record('10.0.0.1'), record('10.0.0.2', 5)], AAAA: [record('fd00::1')] } }

describe('addresses of a name', () => {
  it('are of one family, so that no worker is counted twice', async () => {
    expect(await ids(BOTH)).toEqual(['10.0.0.1:8000', '10.0.0.2:8000'])
    expect(await ids(BOTH, 'http://d.svc:8000', 'ipv6')).toEqual(['[fd00::1]:8000'])
    expect(await ids({ 'd.svc': { AAAA: [record('fd00::1')] } })).toEqual(['[fd00::1]:8000'])
    expect(await problem({ 'd.svc': { AAAA: [record('fd00::1')] } }, 'http://d.svc:8000', 'ipv4')).toEqual({
      reason: 'empty',
      text: 'd.svc has no A records',
    })
  })

  it('have a TTL and are used once', async () => {
    expect((await look(BOTH)).ttlSeconds).toBe(5)
    expect(await ids({ 'd.svc': { A: [record('10.0.0.1'), record('10.0.0.1')] } })).toEqual(['10.0.0.1:8000'])
  })

  it('become origins like those of configured workers', async () => {
    expect((await look(BOTH, 'https://d.svc')).found[0]).toEqual({
      id: '10.0.0.1:443',
      url: 'https://10.0.0.1',
      role: 'decode',
      ready: true,
    })
  })

  it.each([
    ['ESERVFAIL', 'failed', 'DNS lookup of d.svc failed (ESERVFAIL)'],
    ['ETIMEOUT', 'unreachable', 'no response from a DNS server for d.svc (ETIMEOUT)'],
    ['ENOTFOUND', 'empty', 'd.svc does not exist (NXDOMAIN)'],
    ['ENODATA', 'empty', 'd.svc has no A or AAAA records'],
  ])('that cannot be looked up are reported: %s', async (code, reason, text) => {
    expect(await problem({ 'd.svc': { A: code } })).toEqual({ reason, text })
  })
})

describe('SRV records of a name', () => {
  const srv = (name: string, port = 8000) => ({ name, port, priority: 0, weight: 1 })
  const SRV = 'srv://d.svc'

  it('have the name of the target as id and one address each; an empty target is ignored', async () => {
    const records = {
      'd.svc': { SRV: [srv('D-0.d.svc.'), srv('d-1.d.svc', 9000), srv('.')] },
      'D-0.d.svc.': { A: [record('10.0.0.9'), record('10.0.0.10', 7)] },
      'd-1.d.svc': { AAAA: [record('fd00::1')] },
    }
    const { found, ttlSeconds } = await look(records, SRV)
    expect(found.map(({ id, url }) => [id, url])).toEqual([
      ['d-0.d.svc:8000', 'http://10.0.0.10:8000'],
      ['d-1.d.svc:9000', 'http://[fd00::1]:9000'],
    ])
    expect(ttlSeconds).toBe(7)
  })

  it('skip a target without an address, and fail if a lookup fails', async () => {
    const records = { 'd.svc': { SRV: [srv('a'), srv('b')] }, a: { A: [record('10.0.0.1')] } }
    expect(await look(records, SRV)).toMatchObject({
      found: [{ id: 'a:8000' }],
      notes: ['b (target of d.svc) has no address: skipped'],
    })
    expect(await problem({ ...records, b: { A: 'ESERVFAIL' } }, SRV)).toMatchObject({ reason: 'failed' })
    expect(await problem({ 'd.svc': { SRV: [srv('b')] } }, SRV)).toEqual({
      reason: 'empty',
      text: 'd.svc has no address',
    })
  })
})
