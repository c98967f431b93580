import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { Admission } from './admission.ts'
import { Refusal } from './refusal.ts'
import { type StopSignal, UpstreamFailure } from '../upstream/upstreams.ts'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

/** A client that can disconnect. */
class Client implements StopSignal {
  readonly listeners = new Set<(reason: UpstreamFailure) => void>()

  onStop(listener: (reason: UpstreamFailure) => void): () => void {
    this.listeners.add(listener)
    return () => this.listeners.delete(listener)
  }

  leave(): void {
    for (const listener of this.listeners) listener(new UpstreamFailure('aborted', 'client_gone'))
  }
}

/** Asks for admission and records the result. */
function enter(
  admission: Admission,
  client = new Client(),
): { client: Client; state: string; retryAfterSeconds?: number | undefined } {
  const entry: ReturnType<typeof enter> = { client, state: 'waiting' }
  admission.enter(client).then(
    () => (entry.state = 'in'),
    (error: unknown) => {
      entry.state = error instanceof Refusal ? error.code : 'left'
      entry.retryAfterSeconds = error instanceof Refusal ? error.retryAfterSeconds : undefined
    },
  )
  return entry
}

const settle = () => vi.advanceTimersByTimeAsync(0)
const limits = { maxConcurrentRequests: 2, queueSize: 3, queueTimeoutMs: 1_000 }

describe('Admission', () => {
  it('admits requests up to the limit, then the queued ones in order of arrival', async () => {
    const admission = new Admission(limits)
    const entries = Array.from({ length: 5 }, () => enter(admission))
    await settle()
    expect(entries.map(({ state }) => state)).toEqual(['in', 'in', 'waiting', 'waiting', 'waiting'])
    expect([admission.running, admission.queued]).toEqual([2, 3])
    for (let next = 2; next < 5; next++) {
      admission.leave()
      await settle()
      expect(entries.findLastIndex(({ state }) => state === 'in')).toBe(next)
      expect(admission.running).toBe(2)
    }
    admission.leave()
    admission.leave()
    expect([admission.running, admission.queued]).toEqual([0, 0])
  })

  it('does not let a new request overtake queued ones', async () => {
    const admission = new Admission({ ...limits, maxConcurrentRequests: 1 })
    const [, second] = [enter(admission), enter(admission)]
    admission.leave()
    const third = enter(admission)
    await settle()
    expect([second.state, third.state]).toEqual(['in', 'waiting'])
  })

  it('refuses requests when the queue is full, with a Retry-After that grows with the queue', async () => {
    const admission = new Admission(limits)
    const entries = Array.from({ length: 6 }, () => enter(admission))
    await settle()
    expect(entries.at(-1)).toMatchObject({ state: 'ELDR_OVERLOADED', retryAfterSeconds: 7 })
    const narrow = new Admission({ ...limits, queueSize: 0 })
    const [, , refused] = [enter(narrow), enter(narrow), enter(narrow)]
    await settle()
    expect(refused).toMatchObject({ state: 'ELDR_OVERLOADED', retryAfterSeconds: 1 })
    const wide = new Admission({ ...limits, queueSize: 1_000 })
    const last = Array.from({ length: 1_003 }, () => enter(wide)).at(-1)
    await settle()
    expect(last!.retryAfterSeconds).toBe(30)
  })

  it('refuses requests that queued too long and frees their place in the queue', async () => {
    const admission = new Admission(limits)
    const [, , third] = [enter(admission), enter(admission), enter(admission)]
    await vi.advanceTimersByTimeAsync(600)
    const fourth = enter(admission)
    await vi.advanceTimersByTimeAsync(600)
    expect([third.state, fourth.state, admission.queued]).toEqual(['ELDR_QUEUE_TIMEOUT', 'waiting', 1])
    admission.leave()
    await settle()
    expect(fourth.state).toBe('in')
    await vi.advanceTimersByTimeAsync(5_000)
    expect([fourth.state, admission.running]).toEqual(['in', 2])
  })

  it('removes queued requests whose client disconnects, with their timers and listeners', async () => {
    const admission = new Admission(limits)
    const [, , third, fourth] = [enter(admission), enter(admission), enter(admission), enter(admission)]
    third.client.leave()
    await settle()
    expect([third.state, admission.queued]).toEqual(['left', 1])
    admission.leave()
    await settle()
    expect(fourth.state).toBe('in')
    fourth.client.leave()
    expect(admission.running).toBe(2)
    expect([third, fourth].map(({ client }) => client.listeners.size)).toEqual([0, 0])
    expect(vi.getTimerCount()).toBe(0)
  })

  it('has no limit if maxConcurrentRequests is 0', async () => {
    const admission = new Admission({ ...limits, maxConcurrentRequests: 0 })
    const entries = Array.from({ length: 100 }, () => enter(admission))
    await settle()
    expect(entries.every(({ state }) => state === 'in')).toBe(true)
    expect([admission.running, admission.queued]).toEqual([100, 0])
  })

  it('leaks no place in any order of arrivals, disconnects and ends', async () => {
    const admission = new Admission(limits)
    const entries: ReturnType<typeof enter>[] = []
    let running = 0
    for (let step = 0; step < 2_000; step++) {
      const draw = (step * 7_919) % 10
      if (draw < 5) entries.push(enter(admission))
      else if (draw < 7) entries.findLast(({ state }) => state === 'waiting')?.client.leave()
      else if (running > 0) admission.leave()
      await settle()
      running = admission.running
      expect(running).toBeLessThanOrEqual(2)
      expect(admission.queued === 0 || running === 2).toBe(true)
    }
    while (admission.running > 0) {
      admission.leave()
      await settle()
    }
    expect(admission.queued).toBe(0)
    expect(entries.some(({ state }) => state === 'waiting')).toBe(false)
  })
})
