import { describe, expect, it } from 'vitest'
import { pace } from './pacing.ts'

const at = (...times: number[]) => ({ kind: 'open' as const, nextMs: () => times.shift() ?? Infinity })
const UNLIMITED = { requests: Infinity, durationMs: Infinity }

describe('open loop', () => {
  it('sends each request at its planned time or later, prepared before, whether or not others have ended', async () => {
    const startMs = performance.now()
    const seen: [number, number, number][] = []
    const prepared: number[] = []
    let letGo = () => {}
    const held = new Promise<void>(resolve => (letGo = resolve))
    const send = (index: number, plannedMs: number) => {
      seen.push([index, plannedMs - startMs, performance.now() - plannedMs])
      expect(prepared).toContain(index)
      if (index === 3) letGo() // none has ended before the last is sent
      return held
    }
    await pace(at(0, 5.5, 5.75, 12), UNLIMITED, startMs, send, index => prepared.push(index))
    expect(seen.map(([index]) => index)).toEqual([0, 1, 2, 3])
    seen.forEach(([, planned], i) => expect(planned).toBeCloseTo([0, 5.5, 5.75, 12][i]!, 6))
    for (const [, , lateMs] of seen) expect(lateMs).toBeGreaterThanOrEqual(0)
  })

  it('ends after its number of requests, its duration or its arrivals', async () => {
    const sent = async (limits: object, ...times: number[]) => {
      let count = 0
      await pace(at(...times), { ...UNLIMITED, ...limits }, performance.now(), () =>
        Promise.resolve(void count++),
      )
      return count
    }
    expect(await sent({ requests: 2 }, 0, 1, 2, 3)).toBe(2)
    expect(await sent({ durationMs: 2 }, 0, 1, 2, 3)).toBe(3)
    expect(await sent({}, 0, 1)).toBe(2)
    expect(await sent({})).toBe(0)
    expect(await sent({ stop: AbortSignal.abort() }, 0, 1)).toBe(0)
  })

  it('sends overdue requests at once, with their planned times', async () => {
    const startMs = performance.now() - 1000
    const planned: number[] = []
    await pace(at(0, 10, 20), UNLIMITED, startMs, (_, plannedMs) =>
      Promise.resolve(void planned.push(plannedMs - startMs)),
    )
    expect(planned).toEqual([0, 10, 20])
  })
})

describe('closed loop', () => {
  it('never exceeds its concurrency and sends each index once', async () => {
    let [now, most] = [0, 0]
    const seen: number[] = []
    await pace(
      { kind: 'closed', concurrency: 3 },
      { requests: 20, durationMs: Infinity },
      performance.now(),
      async index => {
        seen.push(index)
        most = Math.max(most, ++now)
        await new Promise(resolve => setImmediate(resolve))
        now--
      },
    )
    expect(most).toBe(3)
    expect(seen).toEqual(Array.from({ length: 20 }, (_, i) => i))
  })
})
