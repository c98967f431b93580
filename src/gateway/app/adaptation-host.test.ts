import { describe, expect, it } from 'vitest'
import { Registry } from '../../cluster/registry.ts'
import { LoadTracker } from '../../cluster/tickets.ts'
import type { WorkerSpec } from '../../cluster/worker.ts'
import type { Artifact } from '../../fit/artifact.ts'
import { EventLog } from '../control/dashboard/event-log.ts'
import { Events } from '../observe/events.ts'
import { createLog } from '../observe/log/log.ts'
import { Metrics } from '../observe/metrics/metrics.ts'
import type { RoutingControl, RoutingView } from '../routing/routing-control.ts'
import type { Router } from '../routing/router.ts'
import { adaptationHost } from './adaptation-host.ts'

const SHA = 'a'.repeat(64)
const view: RoutingView = {
  policy: 'eldr',
  tau: 0.1,
  prefillPolicy: 'prefix_hash',
  decodeWorkers: 2,
  artifact: { file: 'x', sha256: SHA, model: 'm', clusters: 2 },
}

/** A gateway whose worker 1 has left: indexes 0 and 2, clusters 0 and 1. */
function gateway() {
  const loads: unknown[][] = []
  const shared: unknown[][] = []
  const [near, far] = [Float32Array.of(1, 0), Float32Array.of(0, 1)]
  const control = {
    policy: 'eldr',
    cost: undefined,
    plan: {
      policy: 'eldr',
      tau: 0.1,
      loaded: { artifact: {} as Artifact, sha256: SHA, file: 'x' },
      assignment: new Map([
        [0, 0],
        [2, 1],
      ]),
    },
    decodeWorkers: () => [
      { id: 'c', index: 2, fixed: false },
      { id: 'a', index: 0, fixed: true },
    ],
    load: async (...given: unknown[]) => {
      loads.push(given)
      return view
    },
  } as unknown as RoutingControl
  const router = {
    inflight: () => [
      { request: { id: '1', signature: near }, worker: 2 },
      { request: { id: '2' }, worker: 0 }, // without a signature
      { request: { id: '3', signature: far }, worker: 1 }, // on the worker that left
      { request: { id: '4', signature: far }, worker: 0 },
    ],
  } as unknown as Router
  const events = new Events()
  const metrics = new Metrics()
  const shown = new EventLog(() => {})
  const tracker = new LoadTracker()
  const registry = new Registry(tracker, {
    consecutiveFailures: 5,
    windowMs: 1,
    windowRequests: 1,
    windowFailureShare: 1,
    openMs: 1,
  })
  const host = adaptationHost({
    control,
    router,
    registry,
    events,
    shown,
    metrics,
    log: createLog({ logLevel: 'silent', logFormat: 'json' }),
    replicas: {
      loadedArtifact: (...given) => shared.push(given),
      fetchArtifact: async sha256 => (sha256 === SHA ? Buffer.of(1) : undefined),
    },
  })
  return { host, control, registry, tracker, loads, shared, events, metrics, shown, near, far }
}

describe('the host of live recalibration', () => {
  it('orders workers by the clusters of a refit, also if a worker has left', () => {
    const { host, near, far } = gateway()
    const target = host.target()!
    expect([...target.assignment]).toEqual([
      [0, 0],
      [2, 1],
    ])
    expect(target.workers).toEqual([
      { cluster: 0, fixed: true },
      { cluster: 1, fixed: false },
    ])
    expect(target.inflight()).toEqual([
      { worker: 1, signature: near },
      { worker: 0, signature: far },
    ])
  })

  it('loads a swap as an operator would, here and on the replicas', async () => {
    const { host, loads, shared } = gateway()
    const assignment = new Map([[0, 0]])
    expect(await host.load('/swaps/one', 'one', assignment)).toBe(SHA)
    expect(loads).toEqual([['/swaps/one', 'one', assignment]])
    expect(shared).toEqual([[view, '/swaps/one', { hold: undefined }]])
    const hold = { how: 'undone', untilMs: 5, sha256: SHA } as const
    await host.load('/swaps/one', 'one', assignment, hold)
    expect(shared[1]).toEqual([view, '/swaps/one', { hold }])
    expect(await host.fetch(SHA)).toEqual(Buffer.of(1))
  })

  it('counts the requests of all gateways, and names the workers that take requests', () => {
    const { host, registry, tracker } = gateway()
    for (const id of ['a', 'c'])
      registry.add({ id, url: `http://${id}:1`, role: 'decode', source: 'config' } as WorkerSpec)
    registry.setHealth(['a', 'c'], true)
    registry.dispatch('decode', 0, 10, 0)
    tracker.elsewhere = worker => ({ inflight: worker === 'c' ? 3 : 0, tokens: 0 })
    expect(host.running()).toBe(4)
    expect(host.target()!.serving).toEqual(['a', 'c'])
    registry.setHealth('a', false)
    expect(host.target()!.serving).toEqual(['c'])
  })

  it('says why there is nothing to adapt', () => {
    const { host, control } = gateway()
    const set = (parts: object) => Object.assign(control, parts)
    set({ decodeWorkers: () => [{ id: 'b', index: 5, fixed: true }], loaded: {} })
    expect(host.target()).toBeUndefined()
    expect(host.whyNoTarget()).toBe(
      'No refit is possible: b has the fixed cluster 5, but the fit has 1 cluster.',
    )
    set({ decodeWorkers: () => [] })
    expect(host.whyNoTarget()).toBe('There is no decode worker.')
    set({ loaded: undefined })
    expect(host.whyNoTarget()).toBe('There is no artifact.')
  })

  it('tells what happens to followers, counters and the dashboard', async () => {
    const { host, events, metrics, shown } = gateway()
    const heard: string[] = []
    events.follow(event => heard.push(event))
    host.happened({ kind: 'drift', meanRank: 0.1, sinceMs: 5 })
    host.happened({ kind: 'failed', problem: 'the disk is full' })
    expect(heard[0]).toContain('event: adapt\ndata: {"kind":"drift","meanRank":0.1,"sinceMs":5}')
    expect(await metrics.text()).toContain('eldr_adapt_events_total{event="failed"} 1')
    expect(shown.last().map(({ change }) => change)).toEqual(['adapt_drift', 'adapt_failed'])
  })
})
