import { describe, expect, it } from 'vitest'
import { failureOf, forever, LIMITS, serve } from '../../../test/worker/kv-served.ts'
import { DATA_BYTES } from './frames.ts'
import type { KvPlace } from './kv-client.ts'
import { RemoteHandoff } from './remote-handoff.ts'

describe('a hand-off on the decode side', () => {
  const handoffOf = (place: KvPlace, leaseMs: number) =>
    new RemoteHandoff({ ...place, tokens: 5 }, { promptHash: 'hash', leaseMs, limits: LIMITS })

  it('keeps the lease alive while its request waits, far beyond its duration', async () => {
    let [nowMs, renewed] = [0, 0]
    const { keep, place, leases, ends } = await serve(120, {}, () => nowMs)
    const renew = leases.renew.bind(leases)
    const often = new Promise<void>(resolve => {
      leases.renew = id => {
        nowMs += 20 // the interval of heartbeats, however late this machine sends them
        if (++renewed === 12) resolve() // two leases
        return renew(id)
      }
    })
    keep('a', Buffer.from('kv'))
    const handoff = handoffOf(place('a'), 120)
    await often
    expect(ends).toEqual([])
    expect((await handoff.fetch(forever(), 0)).bytes.length).toBe(2)
    await handoff.close()
  })

  it('frees the blocks if it ends unread, and sends nothing if they were read', async () => {
    const { keep, place, ended } = await serve()
    keep('a', Buffer.from('kv'))
    keep('b', Buffer.from('kv'))
    await handoffOf(place('a'), 60_000).close()
    const second = handoffOf(place('b'), 60_000)
    await second.fetch(forever(), 0)
    await second.close()
    expect(await ended(2)).toEqual([
      ['a', 'released'],
      ['b', 'read'],
    ])
  })

  it('frees them if it is aborted during the read', async () => {
    const { keep, place, ended } = await serve()
    keep('a', Buffer.alloc(64 * DATA_BYTES))
    const handoff = handoffOf(place('a'), 60_000)
    const stop = new AbortController()
    const fetching = failureOf(handoff.fetch(stop.signal, 0))
    stop.abort()
    await handoff.close()
    expect(await fetching).toMatchObject({ kind: 'stopped' })
    expect(await ended(1)).toEqual([['a', 'released']])
  })

  it('ends without an error if the prefill worker is gone', async () => {
    const { server, place } = await serve()
    const where = place('a')
    await server.close()
    await expect(handoffOf(where, 60_000).close()).resolves.toBeUndefined()
  })
})
