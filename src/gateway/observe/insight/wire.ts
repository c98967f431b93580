/** What the gateway tells the dashboard: plain data, the same types on both sides. Imports nothing, for it is compiled for browsers too. */

/** `GET /eldr/dashboard`: who is asked, and what the asker may do. */
export interface Welcome {
  readonly version: string
  /** What this caller may do. */
  readonly access: 'none' | 'read' | 'change'
  /** Whether the gateway has an admin token: without one whoever is on its machine may change things. */
  readonly tokenSet: boolean
  /** Start of the gateway, since 1970. This and what follows is for those who may read. */
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
  /** Data-parallel rank, where it has one. */
  readonly dpRank?: number
  readonly state: string
  readonly breaker: string
  readonly inflight: number
  /** Prompt tokens of the requests on it. */
  readonly tokens: number
  readonly cluster?: number
  /** Mean time per token of the streams that ended there in the last seconds; of a prefill worker the mean time of its legs. */
  readonly recentMs?: number
  readonly recentCount: number
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
  /** Where its signature lies in the plane of `GET /eldr/plane`. */
  readonly at?: readonly [number, number]
}

export interface Spread {
  readonly count: number
  readonly mean: number
  readonly p50: number
  readonly p95: number
}

/** What one policy did in one slice of time. */
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
  /** Of those, the ones that went by load because nothing usable was known of their experts. */
  readonly withoutSignature: number
  readonly reasons: Readonly<Record<string, number>>
  readonly rejects: Readonly<Record<string, number>>
  /** Mean share of prompts whose experts are known, over the hand-offs that had counts. */
  readonly coverage?: number
  readonly covered: number
  /** Best cosine to any centroid: live quantiles beside those of the calibration requests. */
  readonly compared: number
  readonly quantiles: readonly { readonly q: number; readonly calibration?: number; readonly live?: number }[]
}

export interface ClusterEvent {
  readonly number: number
  readonly atMs: number
  readonly kind: 'worker' | 'routing' | 'gateway'
  /** Of a worker its id. */
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
  /** Decisions since the last pulse, and those of them that are shown. */
  readonly seen: number
  readonly sinceMs: number
  readonly sample: readonly LiveDecision[]
  /** Slices that are still filling. */
  readonly pace: readonly PacePoint[]
  readonly health: FitHealth
  /** New ones. */
  readonly happenings: readonly ClusterEvent[]
  /** Who follows pulses. */
  readonly watchers: number
}

/** `event: hello`, the first of a stream: what was before. */
export interface Hello {
  readonly pulseMs: number
  readonly sampleSize: number
  readonly sliceMs: number
  readonly pace: readonly PacePoint[]
  readonly happenings: readonly ClusterEvent[]
  readonly decisions: readonly LiveDecision[]
  readonly pulse: Pulse
}

/** `GET /eldr/experts`: the experts of each decode worker now. */
export interface ExpertsView {
  readonly layers: number
  readonly experts: number
  readonly topK: number
  readonly workers: readonly WorkerExperts[]
}

export interface WorkerExperts {
  readonly id: string
  /** False: it was asked and did not answer. */
  readonly answered: boolean
  /** Sequences of the last decode step. */
  readonly batch?: number
  /** Distinct experts of the last decode step in each layer. */
  readonly active?: readonly number[]
  /** Base64 of bits [layer][expert], the lowest bit of a byte first: those of the last decode step. Embedded workers have it. */
  readonly union?: string
  /** Base64 of bytes [layer][expert]: chance in 255ths that a step fires it, as the policy `union` estimates. */
  readonly expected?: string
}

/** `plane` of `GET /eldr/plane`, null without an artifact: calibration requests and centroids in the plane of their first two principal components. */
export interface PlaneView {
  readonly sha256: string
  readonly domains: readonly string[]
  /** x, y, cluster, domain (−1: unknown) of each. */
  readonly points: readonly (readonly [number, number, number, number])[]
  readonly centroids: readonly (readonly [number, number])[]
  readonly explained: readonly [number, number]
}

/** One leg of a request's story; times are since the request came. */
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
  /** Since 1970. */
  readonly startedMs: number
  readonly promptTokens?: number
  readonly stream?: boolean
  readonly maxTokens?: number
  readonly legs: readonly LegView[]
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
