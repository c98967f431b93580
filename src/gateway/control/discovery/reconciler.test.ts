import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Timers } from '../../../cluster/health.ts'
import { Registry } from '../../../cluster/registry.ts'
import { LoadTracker } from '../../../cluster/tickets.ts'
import { type DiscoveredWorker, deduplicate, MAX_DISCOVERED } from '../../discovery/source.ts'
import { Reconciler } from './reconciler.ts'

const LIMITS = {
  consecutiveFailures: 5,
  windowMs: 30_000,
  windowRequests: 20,
  windowFailureShare: 0.5,
  openMs: 10_000,
}
const REMOVE_AFTER_MS = 100

/** Time that a test moves. */
function handTimers(): Timers & { pass(ms: number): void } {
  let nowMs = 0
  const waiting = new Set<{ atMs: number; run: () => void }>()
  return {
    after(delayMs, run) {
      const timer = { atMs: nowMs + delayMs, run }
      waiting.add(timer)
      return () => void waiting.delete(timer)
    },
    pass(ms) {
      nowMs += ms
      for (const timer of waiting) {
        if (timer.atMs > nowMs) continue
        waiting.delete(timer)
        timer.run()
      }
    },
  }
}

function start() {
  const registry = new Registry(new LoadTracker(), LIMITS)
  const timers = handTimers()
  const changes: string[] = []
  let conflicts: readonly string[] = []
  const reconciler = new Reconciler({
    source: 'kubernetes',
    registry,
    removeAfterMs: REMOVE_AFTER_MS,
    timers,
    changed: (change, id) => changes.push(`${change} ${id}`),
    conflicts: notes => (conflicts = notes),
  })
  registry.subscribe(({ kind, worker }) => kind === 'added' && registry.setHealth(worker.id, true))
  return {
    registry,
    timers,
    changes,
    reconciler,
    conflicts: () => conflicts,
    states: () =>
      Object.fromEntries(
        registry.views(0).map(({ spec, state, leaving }) => [spec.id, leaving ? 'leaving' : state]),
      ),
    indexes: () => Object.fromEntries(registry.views(0).map(({ spec, index }) => [spec.id, index])),
  }
}

const one = (id: string, more: Partial<DiscoveredWorker> = {}): DiscoveredWorker => ({
  id,
  role: 'decode',
  url: `http://${id}:1`,
  ready: true,
  ...more,
})

describe('ranks of a server', () => {
  const ranks = (count: number, more: Partial<DiscoveredWorker> = {}) =>
    Array.from({ length: count }, (_, dpRank) => one(`a@${dpRank}`, { url: 'http://a:1', dpRank, ...more }))

  it('are separate workers at one address, each with its index', () => {
    const { reconciler, states, indexes, conflicts } = start()
    reconciler.apply([...ranks(3), one('b')])
    expect(states()).toEqual({ 'a@0': 'ready', 'a@1': 'ready', 'a@2': 'ready', b: 'ready' })
    expect(indexes()).toEqual({ 'a@0': 0, 'a@1': 1, 'a@2': 2, b: 3 })
    expect(conflicts()).toEqual([])
    reconciler.apply([...ranks(1), one('b')])
    expect(states()).toEqual({ 'a@0': 'ready', 'a@1': 'draining', 'a@2': 'draining', b: 'ready' })
  })

  it('replace the server as a single worker, and vice versa', () => {
    const { reconciler, states, conflicts } = start()
    reconciler.apply([one('a')])
    reconciler.apply(ranks(2))
    expect(states()).toEqual({ 'a@0': 'ready', 'a@1': 'ready' })
    reconciler.apply([one('a')])
    expect(states()).toEqual({ a: 'ready' })
    expect(conflicts()).toEqual([])
  })

  it('are skipped if another source has the rank or the whole server; other ranks are not', () => {
    const { registry, reconciler, states, conflicts } = start()
    registry.add({ id: 'mine', role: 'decode', url: 'http://a:1', dpRank: 1, source: 'admin' })
    registry.add({ id: 'whole', role: 'decode', url: 'http://b:1', source: 'admin' })
    reconciler.apply([...ranks(3), one('b@0', { url: 'http://b:1', dpRank: 0 })])
    expect(states()).toEqual({ mine: 'ready', whole: 'ready', 'a@0': 'ready', 'a@2': 'ready' })
    expect(conflicts()).toEqual([
      'a@1 skipped: mine has its address, http://a:1@1 (admin)',
      'b@0 skipped: whole has its address, http://b:1 (admin)',
    ])
  })

  it('that an operator removed stay removed until the source gives the id another rank', () => {
    const { registry, reconciler, states } = start()
    reconciler.apply(ranks(2))
    registry.remove('a@1')
    reconciler.apply(ranks(2))
    expect(states()).toEqual({ 'a@0': 'ready' })
    reconciler.apply([...ranks(1), one('a@1', { url: 'http://a:1', dpRank: 5 })])
    expect(states()).toEqual({ 'a@0': 'ready', 'a@1': 'ready' })
  })
})

describe('a discovered worker', () => {
  it('is registered when it is ready', () => {
    const { reconciler, states, registry, changes } = start()
    reconciler.apply([one('a'), one('b', { ready: false }), one('p', { role: 'prefill' })])
    expect(states()).toEqual({ a: 'ready', p: 'ready' })
    expect(registry.views(0).map(({ spec }) => spec.source)).toEqual(['kubernetes', 'kubernetes'])
    reconciler.apply([one('a'), one('b'), one('p', { role: 'prefill' })])
    expect(changes).toEqual(['added a', 'added p', 'added b'])
  })

  it('is drained when it is gone or not ready, and removed if it stays so', () => {
    const { reconciler, states, timers, changes } = start()
    reconciler.apply([one('a'), one('b'), one('c')])
    reconciler.apply([one('a', { ready: false }), one('c')])
    expect(states()).toEqual({ a: 'draining', b: 'draining', c: 'ready' })
    timers.pass(REMOVE_AFTER_MS - 1)
    reconciler.apply([one('a', { ready: false }), one('c')])
    expect(Object.keys(states())).toHaveLength(3)
    timers.pass(1)
    expect(states()).toEqual({ c: 'ready' })
    expect(changes.slice(3).toSorted()).toEqual(['drained a', 'drained b', 'removed a', 'removed b'])
  })

  it('is removed after its requests have ended, and kept with them if it returns', () => {
    const { reconciler, registry, states, timers, changes } = start()
    reconciler.apply([one('a'), one('b')])
    const requests = [registry.dispatch('decode', 0, 7, 0)!, registry.dispatch('decode', 1, 7, 0)!]
    reconciler.apply([])
    timers.pass(10 * REMOVE_AFTER_MS)
    expect(states()).toEqual({ a: 'draining', b: 'draining' })
    reconciler.apply([one('a')])
    expect(states()).toEqual({ a: 'ready', b: 'draining' })
    for (const request of requests) request.succeeded(1)
    expect(states()).toEqual({ a: 'ready' })
    expect(registry.views(0)[0]).toMatchObject({ inflight: 0, tokens: 0 })
    expect(changes.slice(2).toSorted()).toEqual(['drained a', 'drained b', 'removed b', 'undrained a'])
  })

  it('at another address is another server: the old one is removed at once, and the cluster stays', () => {
    const { reconciler, registry, indexes } = start()
    reconciler.apply([one('a'), one('b'), one('c')])
    expect(indexes()).toEqual({ a: 0, b: 1, c: 2 })
    const request = registry.dispatch('decode', 1, 1, 0)!
    reconciler.apply([one('a'), one('b', { url: 'http://elsewhere:1' }), one('c')])
    expect(indexes()).toEqual({ a: 0, b: 1, c: 2 })
    expect(registry.views(0).find(({ spec }) => spec.id === 'b')).toMatchObject({
      spec: { url: 'http://elsewhere:1' },
      inflight: 0,
    })
    request.succeeded(1)
  })

  it('may reuse the address of one that is gone', () => {
    const { reconciler, states } = start()
    reconciler.apply([one('old', { url: 'http://10.0.0.1:1' })])
    reconciler.apply([one('new', { url: 'http://10.0.0.1:1' })])
    expect(states()).toEqual({ new: 'ready' })
  })

  it('has the cluster of its id, in whatever order workers become ready', () => {
    const all = ['d-0', 'd-1', 'd-2', 'd-10'].map(id => one(id))
    fc.assert(
      fc.property(fc.shuffledSubarray([0, 1, 2, 3], { minLength: 4 }), order => {
        const { reconciler, indexes } = start()
        const ready = new Set<number>()
        for (const next of order) {
          ready.add(next)
          reconciler.apply(all.map((found, at) => ({ ...found, ready: ready.has(at) })))
        }
        expect(indexes()).toEqual({ 'd-0': 0, 'd-1': 1, 'd-2': 2, 'd-10': 3 })
      }),
    )
  })

  it('may set its cluster', () => {
    const { reconciler, indexes, conflicts, registry } = start()
    registry.add({ id: 'mine', role: 'decode', url: 'http://mine:1', cluster: 7, source: 'admin' })
    reconciler.apply([one('a', { cluster: 5 }), one('b', { cluster: 7 })])
    expect(indexes()).toEqual({ mine: 7, a: 5 })
    expect(conflicts()).toEqual(['b skipped: another worker has cluster 7'])
  })
})

describe('workers from other sources', () => {
  it('are never changed, and conflicting workers wait until they are gone', async () => {
    const { reconciler, registry, states, conflicts } = start()
    for (const id of ['a', 'b', 'c'])
      registry.add({ id, role: 'decode', url: `http://${id}:1`, source: 'admin' })
    reconciler.apply([one('a'), one('b', { url: 'http://b:2' }), one('x', { url: 'http://c:1' }), one('d')])
    expect(conflicts()).toEqual([
      'b skipped: another worker has this id (admin)',
      'x skipped: c has its address, http://c:1 (admin)',
    ])
    reconciler.apply([])
    expect(states()).toEqual({ a: 'ready', b: 'ready', c: 'ready', d: 'draining' })
    reconciler.apply([one('a'), one('b', { url: 'http://b:2' }), one('x', { url: 'http://c:1' }), one('d')])
    registry.remove('b')
    registry.remove('c')
    await Promise.resolve()
    expect(states()).toEqual({ a: 'ready', b: 'ready', x: 'ready', d: 'ready' })
    expect(conflicts()).toEqual([])
  })

  it('that an operator drained stay drained when they return', () => {
    const { reconciler, registry, states } = start()
    reconciler.apply([one('a')])
    registry.drain('a')
    reconciler.apply([])
    reconciler.apply([one('a')])
    expect(states()).toEqual({ a: 'draining' })
    registry.undrain('a')
    expect(states()).toEqual({ a: 'ready' })
  })

  it('that an operator removed come back after the source has dropped them', async () => {
    const { reconciler, registry, states } = start()
    reconciler.apply([one('a')])
    registry.remove('a')
    await Promise.resolve()
    reconciler.apply([one('a')])
    expect(states()).toEqual({})
    reconciler.apply([])
    reconciler.apply([one('a')])
    expect(states()).toEqual({ a: 'ready' })
  })
})

describe('any sequence of lists', () => {
  const worker = fc.record({
    id: fc.constantFrom('a', 'b', 'c', 'd', 'e'),
    role: fc.constantFrom('prefill' as const, 'decode' as const),
    url: fc.constantFrom(...[1, 2, 3, 4, 5, 6].map(port => `http://h:${port}`)),
    ready: fc.boolean(),
  })
  const lists = fc.array(
    fc.tuple(fc.array(worker, { maxLength: 6 }), fc.nat(2 * REMOVE_AFTER_MS), fc.boolean()),
    { maxLength: 12 },
  )

  it('ends in the last one, whatever requests are running', () => {
    fc.assert(
      fc.property(lists, fc.array(worker, { maxLength: 6 }), (steps, last) => {
        const { reconciler, registry, timers, states } = start()
        const running: { succeeded(nowMs: number): void }[] = []
        for (const [list, passMs, asks] of steps) {
          reconciler.apply(deduplicate(list).found)
          const [candidate] = registry.candidates('decode', 0)
          if (asks && candidate) running.push(registry.dispatch('decode', candidate.worker, 1, 0)!)
          timers.pass(passMs)
        }
        const { found } = deduplicate(last)
        reconciler.apply(found)
        timers.pass(REMOVE_AFTER_MS)
        for (const request of running) request.succeeded(1)
        const wanted = found.filter(({ ready }) => ready)
        expect(states()).toEqual(Object.fromEntries(wanted.map(({ id }) => [id, 'ready'])))
        for (const { spec, inflight } of registry.views(0)) {
          expect(wanted).toContainEqual({ id: spec.id, role: spec.role, url: spec.url, ready: true })
          expect(inflight).toBe(0)
        }
        expect(reconciler.size).toBe(wanted.length)
      }),
    )
  })

  it('is limited, and skipped workers are reported', () => {
    const { reconciler, conflicts } = start()
    reconciler.apply(Array.from({ length: MAX_DISCOVERED + 2 }, (_, n) => one(`d-${n}`)))
    expect(reconciler.size).toBe(MAX_DISCOVERED)
    expect(conflicts()).toEqual([4096, 4097].map(n => `d-${n} skipped: limit of 4096 workers reached`))
  })
})
