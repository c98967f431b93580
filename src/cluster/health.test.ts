import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type HealthLimits, HealthLoop, NODE_TIMERS, type Timers } from './health.ts'

const LIMITS: HealthLimits = { intervalMs: 1000, timeoutMs: 200, failures: 3, successes: 2 }

/** Time that advances on command; due timers run in order, and promises settle in between. */
class FakeTimers implements Timers {
  nowMs = 0
  #due: { atMs: number; run: () => void }[] = []

  after(delayMs: number, run: () => void): () => void {
    const timer = { atMs: this.nowMs + delayMs, run }
    this.#due.push(timer)
    return () => void (this.#due = this.#due.filter(other => other !== timer))
  }

  get pending(): number {
    return this.#due.length
  }

  async pass(ms: number): Promise<void> {
    const untilMs = this.nowMs + ms
    for (;;) {
      await settled()
      const next = this.#due.filter(({ atMs }) => atMs <= untilMs).toSorted((a, b) => a.atMs - b.atMs)[0]
      if (next === undefined) break
      this.#due = this.#due.filter(timer => timer !== next)
      this.nowMs = next.atMs
      next.run()
    }
    this.nowMs = untilMs
  }
}

const settled = () => new Promise<void>(resolve => setImmediate(resolve))

interface Probe {
  readonly id: string
  readonly atMs: number
  readonly signal: AbortSignal
  answer(healthy: boolean): void
  fail(): void
}

/** A health loop whose probes return `answers`, or wait for the test if there is none. */
function loopOf(
  answers: (id: string, check: number) => boolean | undefined = () => undefined,
  limits = LIMITS,
  random = () => 0.5,
) {
  const timers = new FakeTimers()
  const probes: Probe[] = []
  const verdicts: [id: string, healthy: boolean, atMs: number][] = []
  const loop = new HealthLoop({
    limits,
    timers,
    random,
    changed: (id, healthy) => verdicts.push([id, healthy, timers.nowMs]),
    probe: (id, signal) => {
      const { promise, resolve, reject } = withResolvers()
      probes.push({
        id,
        atMs: timers.nowMs,
        signal,
        answer: resolve,
        fail: () => reject(new Error('refused')),
      })
      const answer = answers(id, probes.filter(probe => probe.id === id).length)
      if (answer !== undefined) resolve(answer)
      return promise
    },
  })
  return { timers, probes, verdicts, loop, times: () => probes.map(({ atMs }) => atMs) }
}

function withResolvers() {
  let [resolve, reject]: [(healthy: boolean) => void, (cause: Error) => void] = [
    () => undefined,
    () => undefined,
  ]
  const promise = new Promise<boolean>((...both) => ([resolve, reject] = both))
  return { promise, resolve, reject }
}

describe('health checks', () => {
  it('start at once and repeat at intervals; the first decides alone, then only consecutive opposite results change the verdict', async () => {
    // Results by check: healthy, two failures, healthy, three failures, healthy, failure, two healthy.
    const answers = [true, false, false, true, false, false, false, true, false, true, true]
    const { loop, timers, verdicts, times } = loopOf((_, check) => answers[check - 1])
    loop.watch('a')
    await timers.pass(10_500)
    expect(times()).toEqual(answers.map((_, check) => check * 1000))
    expect(verdicts).toEqual([
      ['a', true, 0],
      ['a', false, 6000],
      ['a', true, 10_000],
    ])
  })

  it('report an unhealthy worker from the first check', async () => {
    const { loop, timers, verdicts } = loopOf(() => false)
    loop.watch('a')
    await timers.pass(100)
    expect(verdicts).toEqual([['a', false, 0]])
  })

  it('fail if they time out, reject or throw', async () => {
    const { loop, timers, probes, verdicts } = loopOf()
    for (const id of ['slow', 'refused']) loop.watch(id)
    probes[1]!.fail()
    await timers.pass(199)
    expect([probes[0]!.signal.aborted, verdicts]).toEqual([false, [['refused', false, 0]]])
    await timers.pass(1)
    expect([probes[0]!.signal.aborted, verdicts[1]]).toEqual([true, ['slow', false, 200]])

    const heard: boolean[] = []
    const throwing = new HealthLoop({
      limits: LIMITS,
      timers,
      random: () => 0,
      changed: (_, healthy) => heard.push(healthy),
      probe: () => {
        throw new Error('no')
      },
    })
    throwing.watch('a')
    await timers.pass(1)
    expect(heard).toEqual([false])
  })

  it('never overlap for one worker, even if a probe outlives its timeout; the worker is marked unhealthy anyway', async () => {
    const { loop, timers, probes, verdicts } = loopOf((_, check) => (check === 1 ? true : undefined), {
      ...LIMITS,
      successes: 1,
    })
    loop.watch('a')
    await timers.pass(5000)
    expect([probes.length, verdicts]).toEqual([
      2,
      [
        ['a', true, 0],
        ['a', false, 3200],
      ],
    ])
    // Its late result is ignored; the next check counts.
    probes[1]!.answer(true)
    await timers.pass(0)
    expect([verdicts.length, timers.pending]).toEqual([2, 1])
    await timers.pass(1500)
    expect(probes.length).toBe(3)
  })

  it('do not show a dead worker as healthy for long after a refused connection: the next check is immediate (both Rust routers: up to 180 s)', async () => {
    const { loop, timers, verdicts, times } = loopOf((_, check) => check < 2)
    loop.watch('a')
    await timers.pass(300)
    for (let failure = 0; failure < 3; failure++) {
      loop.passiveFailure('a')
      await timers.pass(1)
    }
    expect(times()).toEqual([0, 300, 301, 302])
    expect(verdicts.at(-1)).toEqual(['a', false, 302])
    await timers.pass(1000)
    expect(times().at(-1)).toBe(1302)
  })

  it('do not multiply with refused connections: during a check they trigger only one more', async () => {
    const { loop, timers, probes } = loopOf()
    loop.watch('a')
    for (let failure = 0; failure < 100; failure++) loop.passiveFailure('a')
    expect(probes.length).toBe(1)
    probes[0]!.answer(true)
    await timers.pass(1)
    expect(probes.length).toBe(2)
    probes[1]!.answer(true)
    await timers.pass(500)
    expect(probes.length).toBe(2)
  })

  it('do not run in lockstep: intervals vary by a tenth', async () => {
    let draw = 0
    const { loop, timers, times } = loopOf(
      () => true,
      LIMITS,
      () => [0, 0.25, 0.999][draw++ % 3]!,
    )
    loop.watch('a')
    await timers.pass(3000)
    expect(times().map(Math.round)).toEqual([0, 900, 1850, 2950])
  })

  it('are silent after stop or unwatch, and leave no timer behind', async () => {
    const { loop, timers, probes, verdicts } = loopOf()
    for (const id of ['a', 'b', 'c']) loop.watch(id)
    probes[2]!.answer(true)
    await timers.pass(1)
    loop.unwatch('a')
    loop.stop()
    expect([timers.pending, probes.map(({ signal }) => signal.aborted)]).toEqual([0, [true, true, false]])
    probes[0]!.answer(true)
    probes[1]!.fail()
    loop.passiveFailure('a')
    await timers.pass(10_000)
    expect([probes.length, timers.pending, verdicts]).toEqual([3, 0, [['c', true, 0]]])
  })

  it('start over for a worker that is watched again, whatever its last probe returns', async () => {
    const { loop, timers, probes, verdicts } = loopOf()
    loop.watch('a')
    loop.watch('a')
    loop.unwatch('a')
    loop.watch('a')
    expect(probes.length).toBe(2)
    probes[0]!.answer(false)
    await timers.pass(1)
    expect(verdicts).toEqual([])
    probes[1]!.answer(true)
    await timers.pass(1)
    expect(verdicts).toEqual([['a', true, 1]])
  })

  it('match verdicts computed from the last results', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.boolean(), { minLength: 1, maxLength: 30 }),
        fc.integer({ min: 1, max: 4 }),
        fc.integer({ min: 1, max: 4 }),
        async (answers, failures, successes) => {
          const { loop, timers, verdicts } = loopOf((_, check) => answers[check - 1] ?? answers.at(-1), {
            ...LIMITS,
            failures,
            successes,
          })
          loop.watch('a')
          await timers.pass((answers.length - 1) * 1000)
          loop.stop()
          let verdict: boolean | undefined
          answers.forEach((answer, at) => {
            const row = answers.slice(Math.max(0, at + 1 - (answer ? successes : failures)), at + 1)
            const full = row.length === (answer ? successes : failures)
            if (verdict === undefined || (full && row.every(other => other === answer))) verdict = answer
          })
          expect(verdicts.at(-1)?.[1]).toBe(verdict)
        },
      ),
      { numRuns: 60 },
    )
  })
})

describe('Node’s timers', () => {
  it('run once, and not at all if cancelled', async () => {
    const ran: string[] = []
    NODE_TIMERS.after(0, () => ran.push('cancelled'))()
    await new Promise<void>(resolve => {
      // Unreferenced timers alone would not keep the test alive.
      const alive = setTimeout(() => undefined, 60_000)
      NODE_TIMERS.after(1, () => {
        ran.push('ran')
        clearTimeout(alive)
        resolve()
      })
    })
    expect(ran).toEqual(['ran'])
  })
})
