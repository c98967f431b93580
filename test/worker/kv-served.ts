/** A side channel with blocks to read, for tests: real sockets, ends that can be awaited. */
import { afterEach } from 'vitest'
import { KV_LIMITS, type KvFailure, type KvPlace, readKv } from '../../src/worker/kv/kv-client.ts'
import { KvServer, type KvServerOptions } from '../../src/worker/kv/kv-server.ts'
import { type LeaseEnd, LeaseBook } from '../../src/worker/kv/leases.ts'

export const LIMITS = { ...KV_LIMITS, connectMs: 60_000, idleMs: 60_000 }
export const forever = () => new AbortController().signal
export const closers: (() => Promise<void> | void)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).toReversed()) await close()
})

/** `nowMs`: a clock that the test moves; leases then have no timers. */
export async function serve(leaseMs = 60_000, more: Partial<KvServerOptions> = {}, nowMs?: () => number) {
  const ends: [string, LeaseEnd][] = []
  const waiting: (() => void)[] = []
  const leases = new LeaseBook({
    leaseMs,
    nowMs,
    timers: nowMs && { set: () => undefined, clear: () => {} },
    onEnd(id, end) {
      ends.push([id, end])
      for (const tell of waiting.splice(0)) tell()
    },
  })
  const bad: string[] = []
  const server = new KvServer({
    host: '127.0.0.1',
    port: 0,
    engineId: 'engine-1',
    leases,
    onBadFrame: why => bad.push(why),
    ...more,
  })
  await server.listen()
  closers.push(() => server.close())
  const keep = (id: string, bytes: Uint8Array, tokens = 5) => {
    let released = false
    leases.keep(id, {
      promptHash: 'hash',
      blocks: {
        id,
        blockIds: [1, 2],
        tokens,
        export() {
          if (released) throw new Error('exported after its release')
          return { bytes, tokens }
        },
        release: () => void (released = true),
      },
    })
  }
  const place = (requestId: string): KvPlace => ({
    host: '127.0.0.1',
    port: server.port,
    engineId: 'engine-1',
    requestId,
  })
  const ended = async (count: number) => {
    while (ends.length < count) await new Promise<void>(resolve => waiting.push(resolve))
    return ends
  }
  return { server, leases, keep, place, ends, ended, bad }
}

export const read = (place: KvPlace, tokens = 5, stop = forever()) =>
  readKv(place, { from: 0, tokens, promptHash: 'hash' }, LIMITS, stop)
export const failureOf = (call: Promise<unknown>) =>
  call.then(
    () => undefined,
    (error: unknown) => error as KvFailure,
  )
