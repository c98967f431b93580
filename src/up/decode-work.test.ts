import { describe, expect, it } from 'vitest'
import type { WorkerState } from '../worker/server/state.ts'
import { meanStep, NO_WORK, PolicyLedger, sumOf, workBetween } from './decode-work.ts'
import type { ObservedWorker } from './observe.ts'

const MIXED = {
  experts: () => 0,
  instead: ({ batch, active, ms }: { batch: number; active: number; ms: number }) => ({
    batch,
    active: active + 10,
    ms: ms * 1.25,
  }),
}

function seen(
  pid: number,
  totals: { tokens: number; active: number; steps: number; ms: number } | undefined,
): ObservedWorker {
  const stats = totals && {
    decodeTokens: totals.tokens,
    activeTokens: totals.active,
    decodeSteps: totals.steps,
    timing: { steps: totals.steps, takenMs: totals.ms },
  }
  return {
    name: 'decode-0',
    role: 'decode',
    pid,
    restarts: 0,
    state: 'ready',
    inflight: 0,
    own: stats && ({ stats } as WorkerState),
  }
}
const before = seen(7, { tokens: 100, active: 4_000, steps: 20, ms: 200 })
const after = seen(7, { tokens: 160, active: 7_000, steps: 30, ms: 320 })

describe('workBetween', () => {
  it('gives means over tokens and those of mixed batches', () => {
    const work = workBetween(before, after, 1, MIXED, 1)
    expect(meanStep(work)).toEqual({
      batch: 6,
      active: 50,
      tpotMs: 12,
      mixedActive: 60,
      mixedTpotMs: 15,
      gain: expect.closeTo(0.2, 9),
    })
  })

  it('gives profile times at other speeds', () => {
    const work = workBetween(before, after, 2, MIXED, 0.5)
    expect(meanStep(work)).toMatchObject({ tpotMs: 6, batch: 6 })
    expect(work.seconds).toBe(1)
  })

  it('is zero for a worker that was idle, unreachable or restarted', () => {
    for (const [from, to] of [
      [after, after],
      [before, seen(7, undefined)],
      [seen(7, undefined), after],
      [before, seen(8, { tokens: 3, active: 90, steps: 1, ms: 9 })],
    ] as const)
      expect(workBetween(from, to, 1, MIXED, 1)).toBe(NO_WORK)
    expect(meanStep(NO_WORK)).toBeUndefined()
  })
})

describe('PolicyLedger', () => {
  const work = workBetween(before, after, 1, MIXED, 1)

  it('adds up work per policy and leaves out the first seconds after a change', () => {
    const ledger = new PolicyLedger(1.5)
    ledger.add({ policy: 'eldr' }, work)
    ledger.add({ policy: 'eldr' }, work)
    for (let i = 0; i < 3; i++) ledger.add({ policy: 'union' }, work)
    ledger.add({ policy: undefined }, work)
    ledger.add({ policy: 'eldr' }, work)
    expect(ledger.entries()).toEqual([
      ['eldr', sumOf([work, work], 2)],
      ['union', sumOf([work], 1)],
    ])
  })
})
