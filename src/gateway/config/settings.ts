/**
 * All settings of a gateway after flags, environment, file and defaults are merged. schema.ts describes each
 * one.
 */
import type { EngineName } from '../engines/engine-table.ts'
import type { PolicyName } from '../../policy/decode-policy.ts'
import type { PrefillPolicyName } from '../../policy/prefill-policy.ts'

export interface Settings {
  readonly server: ServerSettings
  readonly workers: WorkersSettings
  readonly discovery: DiscoverySettings
  readonly routing: RoutingSettings
  readonly conversations: ConversationSettings
  readonly adapt: AdaptSettings
  readonly replicas: ReplicaSettings
  readonly limits: LimitSettings
  readonly timeouts: TimeoutSettings
  readonly retries: RetrySettings
  readonly resume: ResumeSettings
  readonly lease: LeaseSettings
  readonly breaker: BreakerSettings
  readonly health: HealthSettings
  readonly observe: ObserveSettings
}

export interface ServerSettings {
  readonly host: string
  readonly port: number
  /** Processes that relay requests. With two or more, another process makes all decisions. */
  readonly processes: number
  /** Undefined: /metrics is on the main port. */
  readonly metricsPort?: number
  readonly tls?: ServerTls
  /** Secrets. Clients must send one of them; empty: no key required. */
  readonly apiKeys: readonly string[]
  /** Secret. Without it the admin routes serve loopback connections only. */
  readonly adminToken?: string
  readonly maxBodyBytes: number
  readonly maxHeaderBytes: number
  readonly headersTimeoutMs: number
  readonly bodyTimeoutMs: number
  readonly clientStallMs: number
  readonly keepAliveMs: number
  /** How long running streams may continue after SIGTERM. */
  readonly shutdownGraceMs: number
  /** How long running streams of a process that was replaced may continue. */
  readonly replaceGraceMs: number
  /** How long a successor may take to start. */
  readonly replaceReadyMs: number
}

export interface ServerTls {
  readonly certFile: string
  readonly keyFile: string
  /** If set, clients must present a certificate issued by this CA. */
  readonly caFile?: string
}

export interface WorkersSettings {
  readonly engine: EngineName
  readonly prefill: readonly WorkerSetting[]
  readonly decode: readonly WorkerSetting[]
  /**
   * Data-parallel ranks per discovered server. The lists above are already expanded. The other two override
   * it for one role.
   */
  readonly ranks?: number
  readonly prefillRanks?: number
  readonly decodeRanks?: number
  /** Secret. Bearer token for workers, sent instead of the client's. */
  readonly apiKey?: string
  readonly tls?: WorkerTls
  /** Must be shorter than the workers' keep-alive timeout (uvicorn: 5 s). */
  readonly idleConnectionMs: number
}

export interface WorkerSetting {
  readonly url: string
  /** Unique. Default: derived from the address. */
  readonly id: string
  readonly dpRank?: number
  /** 1 if this server overrides a larger default number of ranks. */
  readonly ranks?: 1
  /** Cluster of the artifact, for decode workers. Default: position in the list. */
  readonly cluster?: number
}

export interface WorkerTls {
  readonly caFile?: string
  readonly certFile?: string
  readonly keyFile?: string
  readonly insecure?: boolean
}

export interface DiscoverySettings {
  /**
   * A worker that disappears is drained at once and removed after this time, once its last request has ended.
   */
  readonly removeAfterMs: number
  /** Wait after a failed lookup. Doubles with each failure. */
  readonly retryMs: number
  readonly file?: FileDiscovery
  readonly dns?: DnsDiscovery
  readonly kubernetes?: KubernetesDiscovery
}

export interface FileDiscovery {
  readonly path: string
  readonly pollMs: number
}

export interface DnsDiscovery {
  /** Format: dns-target.ts. */
  readonly prefill?: string
  readonly decode?: string
  readonly server?: string
  readonly family: 'auto' | 'ipv4' | 'ipv6'
  readonly intervalMs: number
}

export interface KubernetesDiscovery {
  readonly enabled: boolean
  /** Labels of EndpointSlices, KEY=VALUE. */
  readonly prefillSelector: readonly string[]
  readonly decodeSelector: readonly string[]
  /** Undefined: all namespaces. */
  readonly namespace?: string
  readonly port?: number
  readonly scheme: 'http' | 'https'
  /** Default in a pod for these three: the cluster's. */
  readonly apiUrl?: string
  readonly tokenFile?: string
  readonly caFile?: string
  /** Restart a watch that has been silent for this long. */
  readonly silentMs: number
}

export interface RoutingSettings {
  readonly policy: PolicyName
  /** Policies that decide beside it and enforce nothing. */
  readonly shadow: readonly PolicyName[]
  readonly prefillPolicy: PrefillPolicyName
  /** Weight of load against similarity, for eldr and band. */
  readonly tau: number
  readonly artifact?: string
  /** Cost profile of union. */
  readonly profile?: string
  /** Whether union learns the cost of a step from streams, or goes by the profile. */
  readonly stepCost: 'learnt' | 'fixed'
  /** Number of leading prompt tokens that prefix_hash hashes; 4 bytes of text count as one token. */
  readonly prefixTokens: number
  /** Multiple of the average load above which prefix_hash chooses another worker. */
  readonly prefixLoadFactor: number
  /**
   * A request is routed by load if the expert counts of its hand-off cover less than this share of the
   * prompt.
   */
  readonly minCovered: number
  /** Whether to refit when the number of decode workers differs from the number of clusters. */
  readonly refit: 'auto' | 'off'
  /** Pass the prompt token ids of a chat from prefill to decode, so that the chat template runs only once. */
  readonly reuseTokenIds: boolean
}

export interface ConversationSettings {
  readonly enabled: boolean
  readonly maxEntries: number
  readonly keptMs: number
  /** 0: every turn is prefilled remotely. */
  readonly skipPrefillBelowTokens: number
}

/** Live recalibration. */
export interface AdaptSettings {
  readonly mode: 'off' | 'suggest' | 'on'
  /** For the artifacts of swaps. */
  readonly folder: string
  /** Swaps kept in the folder. */
  readonly kept: number
  readonly sampleRequests: number
  /** A sampled request counts half as much after this time. */
  readonly halfLifeMs: number
  readonly minGain: number
  /** How long TPOT is watched after a swap. */
  readonly watchMs: number
}

export interface ReplicaSettings {
  /** Redis or Valkey store; its password is secret. Undefined: this gateway does not share state. */
  readonly url?: string
  /** CA of the store's certificate. */
  readonly caFile?: string
  /** Unique. Default: random. */
  readonly id?: string
  /** Gateways with the same namespace are replicas of each other. */
  readonly namespace: string
  readonly publishMs: number
  /** Interval and max rate for publishing the state of the union policy. */
  readonly unionMs: number
  readonly bytesPerSecond: number
  readonly leaseMs: number
  readonly timeoutMs: number
  readonly retryMs: number
  /** How long changes made through the admin API are kept after the last replica has stopped. */
  readonly changesKeptMs: number
  readonly artifactBytes: number
}

export interface LimitSettings {
  /** Further requests wait in the queue. 0: no limit. */
  readonly maxConcurrentRequests: number
  readonly queueSize: number
  readonly queueTimeoutMs: number
  /** Choices × prompts per request. */
  readonly maxChoices: number
}

export interface TimeoutSettings {
  readonly connectMs: number
  /** For the complete prefill response. */
  readonly prefillMs: number
  /** For the first byte of the decode response body. */
  readonly firstTokenMs: number
  readonly betweenTokensMs: number
  readonly requestMs: number
}

export interface RetrySettings {
  /** Retries per leg. */
  readonly max: number
  /** Max ratio of retries to requests (plus a few), so that retries do not make an outage worse. */
  readonly budgetShare: number
  readonly backoffMs: number
}

export interface ResumeSettings {
  /** Whether another worker goes on with a stream that breaks. */
  readonly enabled: boolean
  readonly maxPerRequest: number
  /** Of prompt and response; longer ones are not resumed. */
  readonly maxTokens: number
  /** Also where the random numbers of a sampled response cannot be repeated. */
  readonly sampled: boolean
}

export interface LeaseSettings {
  /** kv_lease_duration of the prefill workers. */
  readonly durationMs: number
  /** A hand-off older than this share of the lease is discarded. */
  readonly usableShare: number
}

export interface BreakerSettings {
  /** The breaker opens after this many consecutive failures … */
  readonly consecutiveFailures: number
  /** … or if this share of at least `windowRequests` requests in the window failed. */
  readonly windowMs: number
  readonly windowRequests: number
  readonly windowFailureShare: number
  /** After this time one probe request is allowed. */
  readonly openMs: number
}

export interface HealthSettings {
  readonly path: string
  readonly intervalMs: number
  readonly timeoutMs: number
  /** Consecutive checks that change the state of a worker. */
  readonly failures: number
  readonly successes: number
}

export const LOG_LEVELS = ['debug', 'info', 'warn', 'error', 'silent'] as const
export type LogLevel = (typeof LOG_LEVELS)[number]

export interface ObserveSettings {
  readonly logLevel: LogLevel
  readonly logFormat: 'auto' | 'json' | 'pretty'
  /** X-Eldr-* headers on every response; otherwise only on request (debug-headers.ts). */
  readonly debugHeaders: boolean
  /** Number of decisions kept for /eldr/decisions. */
  readonly decisionsKept: number
  /** Access: same as the admin API, everyone, disabled. */
  readonly dashboard: 'admin' | 'open' | 'off'
  readonly traces: TraceSettings
}

export interface TraceSettings {
  /** OTLP over HTTP endpoint. Undefined: tracing is off. */
  readonly endpoint?: string
  /** Secrets, NAME=VALUE. */
  readonly headers: readonly string[]
  readonly serviceName: string
  /** Share of requests to trace, for requests without a traceparent header. */
  readonly sampleRatio: number
  /** A batch is exported when it has this many spans, or after `everyMs`. */
  readonly batchSpans: number
  readonly everyMs: number
  /** Max spans queued for the collector. Further ones are dropped. */
  readonly queueSpans: number
  readonly timeoutMs: number
  /** How long the final export may take at shutdown. */
  readonly flushMs: number
}
