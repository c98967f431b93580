import { describe, expect, it } from 'vitest'
import type { BreakerLimits } from './breaker.ts'
import { type Dispatch, Registry, type RegistryEvent } from './registry.ts'
import { sumByName } from './metrics-text.ts'
import { RestartWatch } from './restart-watch.ts'
import { LoadTracker } from './tickets.ts'
import type { Role, WorkerSpec } from './worker.ts'

const LIMITS: BreakerLimits = {
  consecutiveFailures: 3,
  windowMs: 1000,
  windowRequests: 100,
  windowFailureShare: 0.5,
  openMs: 500,
}

const worker = (id: string, role: Role = 'decode', cluster?: number): WorkerSpec => ({
  id,
  role,
  url: `http://${id}:8000`,
  cluster,
})

/** A registry of healthy workers. */
function cluster(...specs: WorkerSpec[]) {
  const tracker = new LoadTracker()
  const registry = new Registry(tracker, LIMITS)
  registry.addAll(specs)
  for (const { id } of specs) registry.setHealth(id, true)
  const loads = (role: Role = 'decode', nowMs = 0) =>
    Object.fromEntries(registry.candidates(role, nowMs).map(({ id, inflight }) => [id, inflight]))
  const state = (id: string, nowMs = 0) => registry.views(nowMs).find(({ spec }) => spec.id === id)?.state
  const indices = () => Object.fromEntries(registry.views(0).map(({ spec, index }) => [spec.id, index]))
  const send = (index: number, role: Role = 'decode', nowMs = 0): Dispatch =>
    registry.dispatch(role, index, 10, nowMs)!
  const fail = (index: number, role: Role = 'decode') =>
    [1, 2, 3].forEach(nowMs => send(index, role, nowMs).failed(nowMs))
  return { tracker, registry, loads, state, indices, send, fail }
}

describe('ranks of one server', () => {
  const ranks = [0, 1, 2].map((dpRank): WorkerSpec => ({
    id: `a@${dpRank}`,
    role: 'decode',
    url: 'http://a:8000',
    dpRank,
  }))

  it('are separate workers: load, breaker and draining are per rank', () => {
    const { registry, loads, state, indices, send, fail } = cluster(...ranks)
    expect(indices()).toEqual({ 'a@0': 0, 'a@1': 1, 'a@2': 2 })
    expect(send(1).worker.dpRank).toBe(1)
    expect(loads()).toEqual({ 'a@0': 0, 'a@1': 1, 'a@2': 0 })
    fail(2)
    registry.drain('a@0')
    expect(['a@0', 'a@1', 'a@2'].map(id => state(id, 4))).toEqual(['draining', 'ready', 'open'])
  })

  it('change health together: a listener that hears of one sees the others changed too', () => {
    const { registry } = cluster(...ranks)
    const seen: string[] = []
    registry.subscribe(({ kind, worker: { id } }) =>
      seen.push(`${kind} ${id} ${registry.hasCandidates('decode', 0)}`),
    )
    registry.setHealth(
      ranks.map(({ id }) => id),
      false,
    )
    expect(seen).toEqual(['unhealthy a@0 false', 'unhealthy a@1 false', 'unhealthy a@2 false'])
  })

  it('are excluded by id, or all by their URL', () => {
    const { registry } = cluster(...ranks, worker('b'))
    const left = (...exclude: string[]) =>
      registry.candidates('decode', 0, new Set(exclude)).map(({ id }) => id)
    expect(left('a@1')).toEqual(['a@0', 'a@2', 'b'])
    expect(left('http://a:8000')).toEqual(['b'])
    expect(registry.hasCandidates('decode', 0, new Set(['http://a:8000', 'b']))).toBe(false)
  })

  it('renamed to another rank are another worker', () => {
    const { registry, send } = cluster(...ranks)
    expect(registry.add({ ...ranks[0]!, dpRank: 7 })).toBe('id_taken')
    send(0)
    registry.remove('a@0')
    expect(registry.add({ ...ranks[0]!, dpRank: 7 })).toBe('added')
    // The former worker's requests are not its load.
    expect(
      registry
        .views(0)
        .filter(({ spec }) => spec.id === 'a@0')
        .map(({ spec, inflight }) => [spec.dpRank, inflight]),
    ).toEqual([[7, 0]])
  })
})

describe('load, where other routers get it wrong', () => {
  it('is not zero between a decision and the response headers: it counts from the dispatch (sglang #34850)', () => {
    const { registry, loads, send } = cluster(worker('a'), worker('b'))
    send(0)
    expect(loads()).toEqual({ a: 1, b: 0 })
    send(0)
    expect(registry.candidates('decode', 0)).toEqual([
      { worker: 0, id: 'a', inflight: 2, tokens: 20 },
      { worker: 1, id: 'b', inflight: 0, tokens: 0 },
    ])
  })

  it('does not fall while a stream runs, whatever happens to its worker (vllm-router #176)', () => {
    const { registry, tracker, loads, send, fail } = cluster(worker('a'))
    const stream = send(0)
    registry.setHealth('a', false)
    registry.setHealth('a', true)
    registry.drain('a')
    registry.undrain('a')
    registry.add(worker('a'))
    expect(loads()).toEqual({ a: 1 })
    fail(0)
    expect([loads('decode', 3), tracker.inflight('a', 'decode')]).toEqual([{}, 1])
    stream.succeeded(4)
    expect(tracker.inflight('a', 'decode')).toBe(0)
  })

  it('does not come from a worker’s own metrics, which may be missing, old or −1 (vllm-router #174, #177, #178; sglang #32070)', () => {
    const { loads, send } = cluster(worker('a'), worker('b'))
    const watch = new RestartWatch(() => undefined)
    send(1)
    for (const value of [-1, NaN, 1e9])
      watch.sawCounters('a', sumByName([{ name: 'vllm:num_requests_running', labels: {}, value }]))
    expect(loads()).toEqual({ a: 0, b: 1 })
  })

  it('is not reset because a worker was announced again (vllm-router #299)', () => {
    const { registry, loads, send } = cluster(worker('a'))
    send(0)
    expect([registry.add(worker('a')), registry.add({ ...worker('a') })]).toEqual(['unchanged', 'unchanged'])
    expect(loads()).toEqual({ a: 1 })
  })

  it('does not leak when a client leaves during prefill or before decode’s first byte (vllm-router: +1 forever)', () => {
    const { tracker, send } = cluster(worker('p', 'prefill'), worker('d'))
    send(0, 'prefill').ignored()
    send(0).ignored()
    expect([tracker.total('prefill').inflight, tracker.total('decode').inflight, tracker.leaked]).toEqual([
      0, 0, 0,
    ])
  })

  it('is not taken off both legs by the failure of one, nor left on both (sglang #9726, #24159; aibrix #2289)', () => {
    const { tracker, send } = cluster(worker('p', 'prefill'), worker('d'))
    const [prefill, decode] = [send(0, 'prefill'), send(0)]
    prefill.failed(1)
    expect([tracker.total('prefill').inflight, tracker.total('decode').inflight]).toEqual([0, 1])
    decode.ignored()
    expect(tracker.total('decode').inflight).toBe(0)
  })

  it('is not taken off twice when a request ends twice', () => {
    const { tracker, send } = cluster(worker('a'))
    const [first] = [send(0), send(0)]
    first.succeeded(1)
    first.failed(1)
    first.ignored()
    expect([tracker.inflight('a', 'decode'), tracker.doubleReleases]).toEqual([1, 2])
  })

  it('does not depend on the order of a hash map: candidates come by index, and the policy breaks ties (dynamo #6253)', () => {
    const { registry } = cluster(worker('z'), worker('a', 'decode', 5), worker('m', 'decode', 0), worker('b'))
    expect(registry.candidates('decode', 0).map(({ worker, id }) => [worker, id])).toEqual([
      [0, 'm'],
      [1, 'z'],
      [3, 'b'],
      [5, 'a'],
    ])
  })
})

describe('a dispatch', () => {
  it('is current until its worker is removed, also if another one takes the index', () => {
    const { registry, send } = cluster(worker('a'), worker('b'))
    const [first, second] = [send(0), send(1)]
    registry.remove('a')
    registry.add(worker('c'))
    expect([first.isCurrent(), second.isCurrent()]).toEqual([false, true])
    first.succeeded(1)
    second.succeeded(1)
  })
})

describe('candidates', () => {
  it('are the workers that are healthy, not draining and not open; a new worker is unknown until its first check', () => {
    const { registry, loads, state, fail } = cluster(...['a', 'b', 'c', 'd'].map(id => worker(id)))
    registry.add(worker('new'))
    registry.drain('b')
    registry.setHealth('c', false)
    fail(3)
    expect(['a', 'b', 'c', 'd', 'new'].map(id => state(id, 3))).toEqual([
      'ready',
      'draining',
      'unhealthy',
      'open',
      'unknown',
    ])
    expect(Object.keys(loads('decode', 3))).toEqual(['a'])
    expect([1, 2, 3, 4, 9].map(index => registry.dispatch('decode', index, 1, 3))).toEqual(
      Array.from({ length: 5 }),
    )
  })

  it('are empty if all workers of a role are open or unhealthy: no request is sent on the chance that it works', () => {
    const { registry, fail } = cluster(worker('a'), worker('b'), worker('p', 'prefill'))
    registry.setHealth('a', false)
    fail(1)
    expect(registry.candidates('decode', 3)).toEqual([])
    expect(registry.candidates('prefill', 3)).toHaveLength(1)
  })

  it('leave out workers that a retry has tried', () => {
    const { registry } = cluster(worker('a'), worker('b'))
    expect(registry.candidates('decode', 0, new Set(['a'])).map(({ id }) => id)).toEqual(['b'])
  })

  it('do not lose a decode worker because the prefill worker of its requests fails: each leg has its own breaker (sglang-router 0.3.2)', () => {
    const { registry, state, send } = cluster(worker('p', 'prefill'), worker('d'))
    for (const nowMs of [1, 2, 3]) {
      const decode = send(0, 'decode', nowMs)
      send(0, 'prefill', nowMs).failed(nowMs)
      decode.ignored()
    }
    expect([state('p', 3), state('d', 3)]).toEqual(['open', 'ready'])
    expect(registry.views(3).map(({ breaker }) => breaker)).toEqual(['open', 'closed'])
  })

  it('include a worker that was open for one request, the probe, until it has ended', () => {
    const { registry, loads, state, send, fail } = cluster(worker('a'))
    fail(0)
    expect([state('a', 502), state('a', 503)]).toEqual(['open', 'ready'])
    const probe = send(0, 'decode', 503)
    expect([state('a', 503), loads('decode', 503), registry.dispatch('decode', 0, 1, 503)]).toEqual([
      'open',
      {},
      undefined,
    ])
    probe.succeeded(600)
    expect(loads('decode', 600)).toEqual({ a: 0 })
  })

  it('do not lose a worker forever because its probe was lost: the janitor ends it', () => {
    const { tracker, state, send, fail } = cluster(worker('a'))
    fail(0)
    send(0, 'decode', 503)
    tracker.findLeaks(10_000, 5000)
    expect([state('a', 10_000), tracker.inflight('a', 'decode')]).toEqual(['ready', 0])
  })
})

describe('workers that join and leave', () => {
  it('keep their index while registered, and free it for the next', () => {
    const { registry, indices } = cluster(worker('a'), worker('b'), worker('c'))
    registry.remove('a')
    expect(indices()).toEqual({ b: 1, c: 2 })
    registry.add(worker('d'))
    registry.add(worker('e'))
    expect(indices()).toEqual({ b: 1, c: 2, d: 0, e: 3 })
  })

  it('that name a cluster get it before others get theirs by position', () => {
    expect(
      cluster(worker('a'), worker('b', 'decode', 0), worker('c'), worker('p', 'prefill')).indices(),
    ).toEqual({
      a: 1,
      b: 0,
      c: 2,
      p: 0,
    })
  })

  it('cannot share a name or a cluster', () => {
    const { registry, indices } = cluster(worker('a'), worker('b'))
    expect(registry.add({ ...worker('a'), url: 'http://elsewhere:1' })).toBe('id_taken')
    expect(registry.add(worker('a', 'decode', 7))).toBe('id_taken')
    expect(registry.add(worker('a', 'prefill'))).toBe('id_taken')
    expect(registry.add(worker('c', 'decode', 1))).toBe('cluster_taken')
    expect(registry.add(worker('c', 'prefill', 1))).toBe('added')
    expect(indices()).toEqual({ a: 0, b: 1, c: 1 })
  })

  it('get no new request once removed, and are forgotten with the end of their last request', () => {
    const { registry, tracker, loads, state, send } = cluster(worker('a'), worker('b'))
    const events: string[] = []
    registry.subscribe(({ kind, worker }) => events.push(`${kind} ${worker.id}`))
    const [first, second] = [send(0), send(0)]
    expect([registry.remove('a'), registry.remove('a'), registry.remove('missing')]).toEqual([
      true,
      false,
      false,
    ])
    expect([loads(), registry.dispatch('decode', 0, 1, 0), state('a')]).toEqual([
      { b: 0 },
      undefined,
      'draining',
    ])
    first.succeeded(1)
    expect([state('a'), tracker.inflight('a', 'decode')]).toEqual(['draining', 1])
    second.failed(2)
    expect([state('a'), events]).toEqual([undefined, ['removed a', 'forgotten a']])
  })

  it('get their running requests back if they return at the same address', () => {
    const { registry, loads, send } = cluster(worker('a'), worker('b'))
    const old = send(0)
    registry.remove('a')
    expect(registry.add(worker('a'))).toBe('added')
    registry.setHealth('a', true)
    expect(loads()).toEqual({ a: 1, b: 0 })
    old.succeeded(1)
    expect(loads()).toEqual({ a: 0, b: 0 })
  })

  it('do not inherit load or failures from a former worker of the same name: a negative load would attract every request', () => {
    const { registry, loads, send } = cluster(worker('a'))
    const old = Array.from({ length: 4 }, () => send(0))
    registry.remove('a')
    registry.add({ ...worker('a'), url: 'http://elsewhere:1' })
    registry.setHealth('a', true)
    const events: RegistryEvent[] = []
    registry.subscribe(event => events.push(event))
    expect(loads()).toEqual({ a: 0 })
    send(0)
    for (const dispatch of old) dispatch.failed(1)
    expect([loads('decode', 1), events]).toEqual([{ a: 1 }, []])
  })

  it('notify listeners of each change once, and of nothing else', () => {
    const { registry, fail, send } = cluster(worker('a'))
    const kinds: string[] = []
    const stop = registry.subscribe(({ kind }) => kinds.push(kind))
    for (const healthy of [true, false, false, true]) registry.setHealth('a', healthy)
    registry.setHealth('missing', true)
    expect([
      registry.drain('a'),
      registry.drain('a'),
      registry.drain('missing'),
      registry.undrain('a'),
    ]).toEqual([true, true, false, true])
    fail(0)
    send(0, 'decode', 600).succeeded(700)
    expect(kinds.splice(0)).toEqual([
      'unhealthy',
      'healthy',
      'drained',
      'undrained',
      'breaker_open',
      'breaker_half_open',
      'breaker_closed',
    ])
    stop()
    registry.remove('a')
    expect(kinds).toEqual([])
  })
})
