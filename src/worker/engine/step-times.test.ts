import { describe, expect, it } from 'vitest'
import { preciseClock } from './step-clock.ts'
import { StepTimes } from './step-times.ts'

/** Runs steps of 10 ms that end late as given; returns when each should have ended. */
function deadlines(lateMs: readonly number[], times = new StepTimes()): number[] {
  let nowMs = 1_000
  return lateMs.map(late => {
    const deadline = times.begin(nowMs, 10)
    nowMs = deadline + late
    times.end(nowMs, 1)
    return deadline
  })
}

describe('the times of steps', () => {
  it('follow each other without a gap, even if each ends late', () => {
    expect(deadlines([0.5, 1, 0, 2, 0])).toEqual([1_010, 1_020, 1_030, 1_040, 1_050])
  })

  it('catch up after a delay, shortening no step by more than a quarter', () => {
    expect(deadlines([8, 0, 0, 0, 0])).toEqual([1_010, 1_025.5, 1_033, 1_040.5, 1_050])
  })

  it('do not catch up after a suspend', () => {
    expect(deadlines([1_500, 0])).toEqual([1_010, 2_520])
  })

  it('restart after a pause', () => {
    const times = new StepTimes()
    deadlines([0], times)
    times.pause()
    expect(times.begin(1_015, 10)).toBe(1_025)
  })

  it('are reported with their errors and their sum', () => {
    const times = new StepTimes()
    deadlines([...Array.from({ length: 98 }, () => 0), 5, 0], times)
    const { steps, modelledMs, takenMs, errorP50, errorP99, computeMs } = times.timing()
    // The last step is still late, because it was shortened by a quarter only.
    expect([steps, modelledMs, takenMs, computeMs]).toEqual([100, 1_000, 1_002.5, 1])
    expect([errorP50, errorP99]).toEqual([0.0005, 0.2505])
    expect(new StepTimes().timing()).toEqual({
      steps: 0,
      modelledMs: 0,
      takenMs: 0,
      errorP50: 0,
      errorP99: 0,
      computeMs: 0,
    })
  })
})

describe('the clock', () => {
  it('never runs before the deadline, and is exact on average', async () => {
    const clock = preciseClock()
    const times = new StepTimes()
    await new Promise<void>(resolve => {
      const turn = (left: number) => {
        const deadline = times.begin(clock.now(), 3.3)
        clock.at(deadline, () => {
          expect(clock.now()).toBeGreaterThanOrEqual(deadline)
          times.end(clock.now(), 0)
          if (left === 0) resolve()
          else clock.soon(() => turn(left - 1))
        })
      }
      turn(100)
    })
    // Precision depends on the load of the machine; that delays do not accumulate does not.
    const { takenMs, modelledMs } = times.timing()
    expect(takenMs / modelledMs).toBeGreaterThan(0.99)
  })

  it('runs nothing after a cancel', async () => {
    const clock = preciseClock()
    let ran = 0
    clock.at(clock.now() + 20, () => ran++)
    clock.cancel()
    clock.soon(() => ran++)
    clock.cancel()
    const stop = clock.after(1, () => ran++)
    stop()
    await new Promise<void>(resolve => clock.at(clock.now() + 30, resolve))
    expect(ran).toBe(0)
  })
})
