/** JSON that the gateway sends to the dashboard. Imports nothing, because it is compiled for browsers too. */

/** `GET /eldr/dashboard`: the gateway, and what the caller may do. */
export interface Welcome {
  readonly version: string
  readonly access: 'none' | 'read' | 'change'
  /** Whether the gateway has an admin token. Without one, any client on its machine may make changes. */
  readonly tokenSet: boolean
  /** Start of the gateway in Unix time. This and the fields below are absent without read access. */
  readonly startedMs?: number
  readonly policies?: readonly string[]
  readonly prefillPolicies?: readonly string[]
}

export interface LiveRouting {
  readonly policy: string
  readonly tau: number
  readonly prefillPolicy: string
  readonly artifact?: {
    readonly file: string
    readonly sha256: string
    readonly model: string
    readonly clusters: number
  }
  readonly decodeWorkers: number
  readonly note?: string
}

export interface LiveWorker {
  readonly id: string
  readonly role: 'prefill' | 'decode'
  /** Data-parallel rank, if it has one. */
  readonly dpRank?: number
  readonly state: string
  readonly breaker: string
  readonly inflight: number
  /** Prompt tokens of its requests in flight. */
  readonly tokens: number
  readonly cluster?: number
  /** Mean time between tokens (decode) or mean prefill time over the last 10 seconds. */
  readonly recentMs?: number
  readonly recentCount: number
  /** Learnt cost of a decode step; absent before its first streams, and if costs are not learnt. */
  readonly stepCost?: LiveStepCost
}

export interface LiveStepCost {
  readonly baseMs: number
  /** Per active expert, summed over layers. */
  readonly perExpertMs: number
  readonly perRequestMs: number
  readonly streams: number
}

export interface LiveCandidate {
  readonly id: string
  readonly inflight: number
  /** Null: the worker has no centroid. */
  readonly similarity?: number | null
}

export interface LiveDecision {
  readonly request: string
  readonly timeMs: number
  readonly policy: string
  readonly worker: string
  readonly reason: string
  readonly band?: number
  readonly reject?: string
  readonly covered?: number
  readonly candidates: readonly LiveCandidate[]
  /** Position of its signature in the plane of `GET /eldr/plane`. */
  readonly at?: readonly [number, number]
}

export interface Spread {
  readonly count: number
  readonly mean: number
  readonly p50: number
  readonly p95: number
}

/** Latencies under one policy in one time slice. */
export interface PacePoint {
  readonly fromMs: number
  readonly policy: string
  /** Milliseconds. */
  readonly ttft?: Spread
  readonly tpot?: Spread
}

/** How well live requests fit the artifact, over the last `seconds`. */
export interface FitHealth {
  readonly seconds: number
  readonly decisions: number
  /** Decisions made by load because there was no usable signature. */
  readonly withoutSignature: number
  readonly reasons: Readonly<Record<string, number>>
  readonly rejects: Readonly<Record<string, number>>
  /** Mean share of the prompt covered by counts, over the `covered` hand-offs that had counts. */
  readonly coverage?: number
  readonly covered: number
  /** Requests in the live quantiles. */
  readonly compared: number
  /** Highest cosine to any centroid, of live and of calibration requests. */
  readonly quantiles: readonly { readonly q: number; readonly calibration?: number; readonly live?: number }[]
}

export interface ClusterEvent {
  readonly number: number
  readonly atMs: number
  readonly kind: 'worker' | 'routing' | 'gateway'
  /** Worker id for `worker` events. */
  readonly about: string
  readonly change: string
}

/** `event: pulse` of `GET /eldr/pulse`, twice a second. */
export interface Pulse {
  readonly atMs: number
  readonly routing: LiveRouting
  readonly workers: readonly LiveWorker[]
  readonly running: number
  readonly queued: number
  /** Decisions in the last `sinceMs`; `sample` holds some of them. */
  readonly seen: number
  readonly sinceMs: number
  readonly sample: readonly LiveDecision[]
  /** Slices that may still change. */
  readonly pace: readonly PacePoint[]
  readonly health: FitHealth
  /** Events since the last pulse. */
  readonly happenings: readonly ClusterEvent[]
  /** Number of open pulse streams. */
  readonly watchers: number
}

/** `event: hello`, the first event of a stream, with recent history. */
export interface Hello {
  readonly pulseMs: number
  readonly sampleSize: number
  readonly sliceMs: number
  readonly pace: readonly PacePoint[]
  readonly happenings: readonly ClusterEvent[]
  readonly decisions: readonly LiveDecision[]
  readonly pulse: Pulse
}

/** `GET /eldr/experts`: the current experts of each decode worker. */
export interface ExpertsView {
  readonly layers: number
  readonly experts: number
  readonly topK: number
  readonly workers: readonly WorkerExperts[]
}

export interface WorkerExperts {
  readonly id: string
  /** False if the worker did not respond. */
  readonly answered: boolean
  /** Sequences of the last decode step. */
  readonly batch?: number
  /** Distinct experts of the last decode step in each layer. */
  readonly active?: readonly number[]
  /** Base64 of bits [layer][expert] of the last decode step, lowest bit first. Only from embedded workers. */
  readonly union?: string
  /**
   * Base64 of bytes [layer][expert]: probability × 255 that a step activates it, as the policy `union`
   * estimates.
   */
  readonly expected?: string
}

/**
 * `plane` of `GET /eldr/plane`, null without an artifact: calibration requests and centroids in the plane of
 * their first two principal components.
 */
export interface PlaneView {
  readonly sha256: string
  readonly domains: readonly string[]
  /** x, y, cluster, domain (−1: unknown). */
  readonly points: readonly (readonly [number, number, number, number])[]
  readonly centroids: readonly (readonly [number, number])[]
  readonly explained: readonly [number, number]
}

/** One leg of a request's story; times are relative to the arrival of the request. */
export interface LegView {
  readonly leg: 'prefill' | 'decode'
  readonly worker: string
  readonly attempt: number
  readonly part?: string
  readonly fromMs: number
  readonly firstMs?: number
  readonly toMs?: number
  readonly tokens?: number
  readonly outcome?: string
  readonly why?: string
}

/** `story` of `GET /eldr/requests/{id}`. */
export interface StoryView {
  readonly request: string
  readonly route: string
  /** Unix time in milliseconds. */
  readonly startedMs: number
  readonly promptTokens?: number
  readonly stream?: boolean
  readonly maxTokens?: number
  readonly legs: readonly LegView[]
  /** How often its stream went on with another worker, and the longest pause. */
  readonly resumes?: number
  readonly pauseMs?: number
  /** Why its broken stream was not resumed. */
  readonly notResumed?: string
  readonly firstMs?: number
  readonly endMs?: number
  readonly outcome?: string
  readonly status?: number
}

export interface RequestView {
  readonly request: string
  readonly live: readonly { readonly path: string; readonly seconds: number }[]
  readonly decodeWorkers: readonly string[]
  readonly decisions: readonly LiveDecision[]
  readonly story?: StoryView
}

/** `GET /eldr/adapt`: live recalibration. */
export interface AdaptView {
  readonly mode: 'off' | 'suggest' | 'on'
  /**
   * idle: nothing to adapt; steady: the artifact fits; drifting: waits for requests or for the next refit;
   * watching: after a swap; held: after a swap that was taken back.
   */
  readonly state: 'off' | 'idle' | 'steady' | 'drifting' | 'refitting' | 'swapping' | 'watching' | 'held'
  /** Why it is off, idle or held. */
  readonly note?: string
  /** Why no swap can be made. */
  readonly problem?: string
  readonly drift?: {
    /** Mean rank of recent requests among the calibration requests: about 0.5 while the artifact fits. */
    readonly meanRank?: number
    /** When the drift began, in Unix time; absent without drift. */
    readonly sinceMs?: number
    readonly history: readonly DriftPoint[]
  }
  readonly sample?: {
    readonly requests: number
    readonly capacity: number
    readonly halfLifeMs: number
    readonly bytes: number
    /** Requests whose workers reported their decode counts. */
    readonly reported: number
    /** Requests since the change that a refit needs, and those that there are. */
    readonly needed: number
    readonly usable: number
  }
  readonly minGain?: number
  readonly last?: AdaptAttempt
  /** Whether `POST /eldr/adapt/swap` has something to swap to. */
  readonly suggestion: boolean
  /** Newest first. */
  readonly swaps: readonly AdaptSwap[]
}

export interface DriftPoint {
  readonly fromMs: number
  readonly meanRank: number
  readonly requests: number
}

/** A refit and its judgement. */
export interface AdaptAttempt {
  readonly atMs: number
  readonly seconds: number
  readonly verdict: 'swap' | 'suggest' | 'no_gain' | 'failed'
  readonly problem?: string
  /**
   * Share of the time of a decode step that it should save, mean ± half; absent if it failed, as all below.
   */
  readonly gain?: number
  readonly gainHalf?: number
  readonly judgedBy?: 'reported' | 'predicted'
  /** Sampled requests that it was fitted on, and those that it was judged on. */
  readonly fitted?: number
  readonly heldOut?: number
  /** Requests in flight whose home changes, of `inflight`. */
  readonly moved?: number
  readonly inflight?: number
}

/** An artifact that was refitted from live requests and put in force. */
export interface AdaptSwap {
  readonly atMs: number
  readonly file: string
  readonly sha256: string
  readonly parentSha256: string
  readonly state: 'in_force' | 'past' | 'undone' | 'rolled_back'
  readonly sampleRequests: number
  readonly heldOutRequests: number
  readonly gain: number
  readonly gainHalf: number
  readonly judgedBy: 'reported' | 'predicted'
  readonly moved?: number
  /** p99 of TPOT before and after it, once enough streams have ended. */
  readonly p99BeforeMs?: number
  readonly p99AfterMs?: number
}

export type ShadowState = 'deciding' | 'waiting' | 'failed'

export interface ShadowRow {
  readonly policy: string
  /** waiting: something that it needs is missing. failed: it threw, and is out until the next change. */
  readonly state: ShadowState
  readonly why?: string
  readonly decisions: number
  readonly agreed: number
  readonly judged: number
  /** Means over the judged decisions. Absent without any. */
  readonly experts?: { readonly shadow: number; readonly inForce: number }
  /** What a step of the request costs it and the others at its worker. */
  readonly costUs?: { readonly shadow: number; readonly inForce: number }
}

/** `GET /eldr/shadow`: what shadow policies would have decided. */
export interface ShadowView {
  /** The policy in force. */
  readonly inForce: string
  readonly sinceMs: number
  /** Decisions of the policy in force since then; shadow policies rest while their time is spent. */
  readonly requests: number
  readonly shadows: readonly ShadowRow[]
}

/** What the dashboard shows of `GET /eldr/experiment`. */
export interface LiveExperiment {
  readonly running: boolean
  readonly policies?: readonly string[]
  /** Number of the current slot, from 1; 0 before the first. */
  readonly slot?: number
  /** The policy in force. */
  readonly policy: string
  /** The policy that is restored at the end. */
  readonly restores?: string
}
