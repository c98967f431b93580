import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { BreakerLimits } from './breaker.ts'
import { type Dispatch, Registry } from './registry.ts'
import { LoadTracker } from './tickets.ts'
import type { WorkerSpec } from './worker.ts'

const LIMITS: BreakerLimits = {
  consecutiveFailures: 3,
  windowMs: 1000,
  windowRequests: 100,
  windowFailureShare: 0.5,
  openMs: 20,
}

const worker = (id: string): WorkerSpec => ({ id, role: 'decode', url: `http://${id}:8000` })

describe('the registry', () => {
  it('matches the loads of a plain list of requests under any schedule of workers and requests, and ends empty', () => {
    const ids = ['a', 'b', 'c']
    const step = fc.record({
      do: fc.constantFrom(
        'add',
        'move',
        'remove',
        'drain',
        'undrain',
        'sick',
        'well',
        'send',
        'send',
        'send',
        'end',
        'end',
      ),
      id: fc.constantFrom(...ids),
      which: fc.nat(),
      outcome: fc.constantFrom('succeeded' as const, 'failed' as const, 'ignored' as const),
    })
    fc.assert(
      fc.property(fc.array(step, { maxLength: 150 }), steps => {
        const tracker = new LoadTracker()
        const registry = new Registry(tracker, LIMITS)
        const running: { dispatch: Dispatch; url: string }[] = []
        const urls: Record<string, string> = Object.fromEntries(ids.map(id => [id, worker(id).url]))
        steps.forEach(({ do: action, id, which, outcome }, nowMs) => {
          if (action === 'move') urls[id] = `http://${id}:${nowMs}`
          if (action === 'add') registry.add({ ...worker(id), url: urls[id]! })
          if (action === 'remove' || action === 'drain' || action === 'undrain') registry[action](id)
          if (action === 'sick' || action === 'well') registry.setHealth(id, action === 'well')
          const candidates = registry.candidates('decode', nowMs)
          const picked = action === 'send' ? candidates[which % Math.max(1, candidates.length)] : undefined
          if (picked !== undefined) {
            const dispatch = registry.dispatch('decode', picked.worker, 1 + (which % 9), nowMs)!
            running.push({ dispatch, url: dispatch.worker.url })
          }
          if (action === 'end')
            running.splice(which % Math.max(1, running.length), 1)[0]?.dispatch[outcome](nowMs)
          const views = registry.views(nowMs)
          for (const { spec, inflight, leaving } of views) {
            expect(inflight).toBe(
              running.filter(({ dispatch, url }) => dispatch.worker.id === spec.id && url === spec.url)
                .length,
            )
            expect(leaving && inflight === 0).toBe(false)
          }
          const indices = views.filter(({ leaving }) => !leaving).map(({ index }) => index)
          expect(new Set(indices).size).toBe(indices.length)
          expect(tracker.total('decode').inflight).toBe(running.length)
        })
        for (const { dispatch } of running) dispatch.succeeded(1e6)
        for (const id of ids) registry.remove(id)
        expect([tracker.total('decode'), registry.views(1e6), tracker.doubleReleases]).toEqual([
          { inflight: 0, tokens: 0 },
          [],
          0,
        ])
      }),
    )
  })
})
