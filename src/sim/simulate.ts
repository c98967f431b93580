/**
 * One run of a cluster: arrivals → prefill policy → prefill worker → decode policy at the moment prefill ends
 * → KV transfer → decode worker → last token. Discrete events; a decode step of a whole batch is one event.
 * The same input gives exactly the same numbers: time is a sum of modelled costs, events of one time keep
 * their order, and arrivals, rows and ties have separate random streams, so that runs with different policies
 * see requests at the same times (and the same ones, as far as `row-draw.ts` can).
 */
import { type CostProfile, layerWeights, transferUs } from '../cost/profile.ts'
import { createRandom } from '../math/random.ts'
import type { DecodePolicy, RoutableRequest } from '../policy/decode-policy.ts'
import type { PrefillPolicy } from '../policy/prefill-policy.ts'
import { exactDispatcher } from './decode-dispatcher.ts'
import { DecodeWorker } from './decode-worker.ts'
import { EventQueue } from './event-queue.ts'
import { DEFAULT_LIMITS, type Limits } from './limits.ts'
import { type Histograms, Metrics, type Slo } from './metrics.ts'
import { PrefillWorker } from './prefill-worker.ts'
import { linearRanks, type PlacementSpec, rankMasks, ranksOfWorker } from './rank-masks.ts'
import type { Replay } from './replay.ts'
import { type Replicas, replicaDispatcher } from './replicas.ts'
import { RequestPool } from './requests.ts'
import { resultOf, type SimulationResult } from './result.ts'
import { SharedSteps } from './shared-steps.ts'
import type { Topology } from './topology.ts'
import { createWorkload, prefixKeyOf, type WorkloadSpec } from './workload.ts'

export interface SimulationInput {
  readonly workload: WorkloadSpec
  /** Fewer run if a recorded workload ends earlier. */
  readonly requests: number
  readonly seed: number
  readonly replay: Replay
  readonly profile: CostProfile
  readonly topology: Topology
  /**
   * New: it must not have seen another run. One gateway with exact loads, or several with views of each
   * other.
   */
  readonly decodePolicy: DecodePolicy | Replicas
  /** Required if the topology has prefill workers. */
  readonly prefillPolicy?: PrefillPolicy
  /**
   * What the router knows about a request of the trace, by its number there (default: nothing). Called once
   * per arrival.
   */
  readonly featuresOf?: (request: number) => Omit<RoutableRequest, 'id'>
  /** Shares of the requests at the beginning and at the end that are not measured (default: 0.15 and 0.1). */
  readonly warmUpShare?: number
  readonly coolDownShare?: number
  /** Instead of the shares. */
  readonly measured?: MeasuredPart
  readonly limits?: Partial<Limits>
  /** Of experts on the ranks of expert-parallel decode workers (default: linear). */
  readonly placement?: PlacementSpec
  readonly slo?: Slo
  /** A decode worker on slower hardware (default: all are as fast as the profile says). */
  readonly slowDecoder?: SlowDecoder
  /** Called when any decode step begins, measured or not; for timing real steps on a GPU. */
  readonly onStep?: (worker: DecodeWorker, decoder: number, nowUs: number) => void
  /** Called before a decode worker is picked. */
  readonly onDispatch?: (nowUs: number) => void
  /** Called when any request ends, measured or not, while it is in its slot of the pool. */
  readonly onEnded?: (pool: RequestPool, slot: number, nowUs: number) => void
}

export interface SimulationRun {
  readonly result: SimulationResult
  /** To merge with those of other seeds. */
  readonly histograms: Histograms
}

export interface SlowDecoder {
  readonly decoder: number
  /** Its steps take this many times as long. */
  readonly factor: number
}

export interface MeasuredPart {
  /** Numbers of the first measured request and of the first one after them. */
  readonly first: number
  readonly end: number
  /** Steps that end later are not measured (default: the arrival of the request after the measured ones). */
  readonly untilUs?: number
}

const ARRIVAL = 0
const PREFILL_STEP = 1
const KV_ARRIVED = 2
const DECODE_STEP = 3
/** With shared devices, instead of DECODE_STEP: the host's part has ended, and device parts may have. */
const HOST_PART = 4
const DEVICE_PART = 5

/** Numbers of the first measured request and of the first one after them. */
export function measuredRequests(requests: number, warmUpShare = 0.15, coolDownShare = 0.1): MeasuredPart {
  return { first: Math.floor(requests * warmUpShare), end: Math.ceil(requests * (1 - coolDownShare)) }
}

export function simulate(input: SimulationInput): SimulationRun {
  const {
    replay,
    profile,
    topology,
    decodePolicy,
    prefillPolicy,
    requests,
    seed,
    warmUpShare,
    coolDownShare,
  } = input
  if (topology.prefill > 0 && prefillPolicy === undefined)
    throw new RangeError('prefill workers without a prefill policy')
  const limits: Limits = { ...DEFAULT_LIMITS, kvTokens: profile.kv.capacityTokens, ...input.limits }
  const random = createRandom(seed)
  const events = new EventQueue()
  const pool = new RequestPool()
  const blockTokens = input.workload.lengths?.prefixes?.blockTokens ?? limits.blockTokens
  const workload = createWorkload(input.workload, replay, topology.prefill > 0 ? blockTokens : 0, random)
  const measured = input.measured ?? measuredRequests(requests, warmUpShare, coolDownShare)
  const { untilUs = Infinity } = measured
  const metrics = new Metrics(pool, topology.decode, limits.maxBatch, measured, input.slo ?? {})

  const prefillLimits = {
    tokensPerStep: limits.prefillTokensPerStep,
    cacheTokens: limits.prefixCacheTokens,
    blockTokens,
  }
  const prefillers = Array.from(
    { length: topology.prefill },
    () => new PrefillWorker(pool, profile, prefillLimits),
  )
  const prefillCandidates = prefillers.map((_, worker) => ({ worker, inflight: 0 }))
  const prefillContext = { random: random.fork(3).uniform }

  const weights = layerWeights(profile.shape.layers, replay.layers)
  const masksOf = maskMaker(replay, topology, input.placement)
  const decoders = Array.from(
    { length: topology.decode },
    (_, worker) =>
      new DecodeWorker({
        replay,
        pool,
        profile,
        limits,
        weights,
        masks: masksOf(worker),
        noise: random.fork(6).fork(worker),
        slowness: input.slowDecoder?.decoder === worker ? input.slowDecoder.factor : 1,
      }),
  )
  const sharedSteps =
    topology.perDevice === undefined
      ? undefined
      : new SharedSteps(topology.decode, topology.perDevice, profile, {
          hostEndsAt: (timeUs, decoder) => events.push(timeUs, HOST_PART, decoder),
          deviceDueAt: (timeUs, device) => events.push(timeUs, DEVICE_PART, device),
        })
  const inflight = new Int32Array(topology.decode)
  const dispatcherOptions = {
    workers: topology.decode,
    requests,
    ties: random.fork(4),
    entrances: random.fork(5),
  }
  const dispatcher =
    'pick' in decodePolicy
      ? exactDispatcher(decodePolicy, dispatcherOptions)
      : replicaDispatcher(decodePolicy, dispatcherOptions)
  let nowUs = 0

  function scheduleArrival(): void {
    const timeUs = metrics.arrived < requests ? workload.nextArrivalUs() : Infinity
    if (timeUs < Infinity) events.push(timeUs, ARRIVAL, 0)
  }

  function arrive(): void {
    const slot = pool.take()
    workload.assign(pool, slot)
    pool.arrivalUs[slot] = nowUs
    metrics.requestArrived(nowUs)
    scheduleArrival()
    const features = input.featuresOf?.(replay.requestOf[pool.row[slot]!]!)
    pool.routable[slot] = { id: `${pool.index[slot]}`, promptTokens: pool.promptTokens[slot]!, ...features }
    if (prefillPolicy === undefined || prefillers.length === 0) return dispatch(slot)

    const prefixKey = prefixKeyOf(pool.blocks[slot]!, Math.ceil(limits.prefixKeyTokens / blockTokens))
    const { worker } = prefillPolicy.pick({ prefixKey }, prefillCandidates, prefillContext)
    prefillPolicy.dispatched?.(worker)
    prefillCandidates[worker]!.inflight++
    pool.prefillWorker[slot] = worker
    prefillers[worker]!.enqueue(slot)
    if (!prefillers[worker]!.busy) startPrefill(worker)
  }

  function startPrefill(worker: number): void {
    const us = prefillers[worker]!.startStep()
    if (us !== undefined) events.push(nowUs + us, PREFILL_STEP, worker)
  }

  function prefilled(slot: number): void {
    prefillCandidates[pool.prefillWorker[slot]!]!.inflight--
    metrics.firstToken(slot, nowUs)
    dispatch(slot)
  }

  /** Prefill has ended: a decode worker is picked, and from now on the request counts as its load. */
  function dispatch(slot: number): void {
    if (pool.decodeTokens[slot] === 0) return end(slot) // its first token was its last
    const request = pool.routable[slot]!
    input.onDispatch?.(nowUs)
    const decision = dispatcher.pick(pool.index[slot]!, request, nowUs)
    const { worker } = decision
    if (decoders[worker] === undefined)
      throw new RangeError(`policy ${decodePolicy.name} picked worker ${worker} of ${decoders.length}`)
    metrics.decided(decision, inflight)
    dispatcher.dispatched(pool.index[slot]!, request, worker, nowUs)
    inflight[worker]!++
    pool.decodeWorker[slot] = worker
    if (prefillers.length === 0) return join(slot)
    events.push(nowUs + transferUs(profile, pool.promptTokens[slot]!), KV_ARRIVED, slot)
  }

  function join(slot: number): void {
    const decoder = pool.decodeWorker[slot]!
    decoders[decoder]!.enqueue(slot)
    if (!decoders[decoder]!.busy) startDecode(decoder)
  }

  function startDecode(decoder: number): void {
    const worker = decoders[decoder]!
    const us = worker.startStep(nowUs)
    if (us === undefined) return
    input.onStep?.(worker, decoder, nowUs)
    if (sharedSteps === undefined) events.push(nowUs + us, DECODE_STEP, decoder)
    else sharedSteps.begin(decoder, worker.hostUs, worker.deviceUs, nowUs)
  }

  function endDecode(decoder: number): void {
    metrics.stepEnded(decoder, decoders[decoder]!, nowUs)
    decoders[decoder]!.endStep(decoded)
    startDecode(decoder)
  }

  function endSharedDecode(decoder: number | undefined): void {
    if (decoder === undefined) return
    decoders[decoder]!.stepUs = nowUs - sharedSteps!.beganUs[decoder]!
    endDecode(decoder)
  }

  function decoded(slot: number): void {
    const worker = pool.decodeWorker[slot]!
    dispatcher.released(pool.index[slot]!, pool.routable[slot]!, worker, nowUs)
    inflight[worker]!--
    end(slot)
  }

  function end(slot: number): void {
    metrics.requestEnded(slot, nowUs)
    input.onEnded?.(pool, slot, nowUs)
    workload.release(pool.row[slot]!)
    pool.giveBack(slot)
  }

  scheduleArrival()
  while (events.pop()) {
    nowUs = events.timeUs
    if (nowUs > untilUs && !metrics.isClosed) metrics.close(untilUs)
    const { kind, subject } = events
    if (kind === DECODE_STEP) endDecode(subject)
    else if (kind === ARRIVAL) arrive()
    else if (kind === KV_ARRIVED) join(subject)
    else if (kind === HOST_PART) endSharedDecode(sharedSteps!.hostEnded(subject, nowUs))
    else if (kind === DEVICE_PART) endSharedDecode(sharedSteps!.deviceDue(subject, nowUs))
    else {
      prefillers[subject]!.endStep(prefilled)
      startPrefill(subject)
    }
  }
  metrics.runEnded(nowUs)
  if (pool.inflight > 0) throw new Error(`${pool.inflight} requests never ended`)
  const names = {
    policy: decodePolicy.name,
    prefillPolicy: prefillPolicy?.name ?? null,
    topology,
    profile,
    seed,
  }
  return { result: resultOf(names, metrics, prefillers, decoders), histograms: metrics.histograms }
}

/**
 * Rank masks of each decode worker; undefined with one rank. Workers that share a placement share its masks.
 */
function maskMaker(
  replay: Replay,
  { ranks }: Topology,
  placement: PlacementSpec | undefined,
): (worker: number) => Int32Array | undefined {
  if (ranks === 1) return () => undefined
  const { layers, experts } = replay
  const cells = layers * experts
  const spec = placement ?? { rankOf: linearRanks(layers, experts, ranks) }
  const made: Int32Array[] = []
  const shared = spec.rankOf.length === cells
  return worker =>
    (made[shared ? 0 : worker] ??= rankMasks(ranksOfWorker(spec, cells, worker), layers, experts, ranks))
}
