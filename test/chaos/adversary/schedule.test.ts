/** Schedules depend only on the seed, and keep enough of the cluster alive. */
import { describe, expect, it } from 'vitest'
import { isHit } from '../check/check-hit.ts'
import type { Observation } from '../observation.ts'
import { KINDS, type KindName } from './kinds.ts'
import { drawRound, type Step } from './schedule.ts'

const OPTIONS = { seed: 7, roundMs: 16_000, hasNetwork: true, hasDisk: true }
const rounds = (seed: number) =>
  Array.from({ length: 40 }, (_, round) => drawRound(round, { ...OPTIONS, seed }))
const on = ({ kind }: Step) => KINDS[kind].on

describe('a schedule', () => {
  it('is the same for the same seed, and each round is drawn by itself', () => {
    expect(drawRound(3, OPTIONS)).toEqual(drawRound(3, OPTIONS))
    expect(drawRound(3, OPTIONS)).not.toEqual(drawRound(4, OPTIONS))
    expect(drawRound(3, OPTIONS)).not.toEqual(drawRound(3, { ...OPTIONS, seed: 8 }))
  })

  it('has every kind of fault within forty rounds, and no two steps of one name', () => {
    const steps = rounds(7).flat()
    expect(new Set(steps.map(({ kind }) => kind)).size).toBe(Object.keys(KINDS).length)
    expect(new Set(steps.map(({ id }) => id)).size).toBe(steps.length)
    expect(steps.length / 40).toBeGreaterThan(12)
  })

  it('has no faults of the network or the disk where there are none', () => {
    const steps = Array.from({ length: 40 }, (_, round) =>
      drawRound(round, { ...OPTIONS, hasNetwork: false, hasDisk: false }),
    ).flat()
    expect(steps.filter(step => on(step) === 'path' || on(step) === 'disk')).toEqual([])
  })

  it('never takes away more than two workers, or both gateways', () => {
    for (const steps of [...rounds(7), ...rounds(8)])
      for (const { atMs } of steps) {
        const active = steps.filter(step => step.atMs <= atMs && step.atMs + step.forMs > atMs)
        expect(active.filter(step => on(step) === 'worker').length).toBeLessThanOrEqual(2)
        const gateways = active.filter(step => ['gateway', 'owner', 'relay'].includes(on(step)))
        expect(gateways.length).toBeLessThanOrEqual(1)
      }
  })
})

describe('a stream is hit', () => {
  const stream = {
    stream: true,
    gateway: 'gw1',
    worker: 'd1',
    end: 'ended',
    codes: [] as string[],
    startMs: 0,
    firstMs: 100,
    endMs: 900,
  } as unknown as Observation
  const hit = (kind: KindName, targets: string[], startMs = 500, seen = stream) =>
    isHit(seen, [{ id: '0:0', kind, targets, startMs }])

  it('by a fault of its worker, gateway or path after its first token', () => {
    expect(hit('kill-worker', ['d1'])).toBe(true)
    expect(hit('kill-worker', ['d2'])).toBe(false)
    expect(hit('kill-worker', ['d1'], 50)).toBe(false)
    expect(hit('cut-path', ['gw1', 'd1'])).toBe(true)
    expect(hit('cut-path', ['gw2', 'd1'])).toBe(false)
    expect(hit('lossy-path', ['gw1', 'client'])).toBe(true)
    expect(hit('kill-owner', ['gw1/owner'])).toBe(true)
    expect(hit('change-policy', ['gw1'])).toBe(false)
  })

  it('by a fault of a relay only if it broke, and by a client that leaves', () => {
    expect(hit('kill-relay', ['gw1/relay-1'])).toBe(false)
    expect(hit('kill-relay', ['gw1/relay-1'], 500, { ...stream, end: 'cut' })).toBe(true)
    expect(isHit({ ...stream, end: 'left' }, [])).toBe(true)
  })
})
