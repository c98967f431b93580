/** Everything that can be set about a gateway, resolved: flags, environment, file and defaults are one value each here. */
import type { PolicyName } from '../../policy/decode-policy.ts'
import type { PrefillPolicyName } from '../../policy/prefill-policy.ts'

export interface Settings {
  readonly server: ServerSettings
  readonly workers: WorkersSettings
  readonly discovery: DiscoverySettings
  readonly routing: RoutingSettings
  readonly replicas: ReplicaSettings
  readonly limits: LimitSettings
  readonly timeouts: TimeoutSettings
  readonly retries: RetrySettings
  readonly lease: LeaseSettings
  readonly breaker: BreakerSettings
  readonly health: HealthSettings
  readonly observe: ObserveSettings
}

export interface ServerSettings {
  readonly host: string
  readonly port: number
  /** That relay requests; with two or more another one decides for them. */
  readonly processes: number
  /** Absent: metrics are on the main port, at /metrics. */
  readonly metricsPort?: number
  readonly tls?: ServerTls
  /** Secrets: clients must bring one of them; none means that anybody may ask. */
  readonly apiKeys: readonly string[]
  /** Secret: without it the admin routes that change something answer only on a loopback connection. */
  readonly adminToken?: string
  readonly maxBodyBytes: number
  readonly maxHeaderBytes: number
  /** A client must have sent its headers, and its whole request, within these. */
  readonly headersTimeoutMs: number
  readonly bodyTimeoutMs: number
  /** A client that takes no byte for so long while there are some for it is let go. */
  readonly clientStallMs: number
  readonly keepAliveMs: number
  /** Streams may go on for so long after SIGTERM. */
  readonly shutdownGraceMs: number
}

export interface ServerTls {
  readonly certFile: string
  readonly keyFile: string
  /** Clients must show a certificate of this authority. */
  readonly caFile?: string
}

export interface WorkersSettings {
  readonly engine: 'vllm-nixl'
  readonly prefill: readonly WorkerSetting[]
  readonly decode: readonly WorkerSetting[]
  /** Engines of each server that discovery finds; the lists have been expanded by it. The other two are for one role, in place of it. */
  readonly ranks?: number
  readonly prefillRanks?: number
  readonly decodeRanks?: number
  /** Secret: sent to workers as a bearer token in place of the client's. */
  readonly apiKey?: string
  readonly tls?: WorkerTls
  /** Must be below the workers' own keep-alive time (uvicorn: 5 s). */
  readonly idleConnectionMs: number
}

export interface WorkerSetting {
  readonly url: string
  /** Unique; made from the address when not given. */
  readonly id: string
  readonly dpRank?: number
  /** 1 where servers have several engines unless told, and this one has been told to have one. */
  readonly ranks?: 1
  /** Of a decode worker: the cluster of the artifact that is its own; its place in the list unless told. */
  readonly cluster?: number
}

export interface WorkerTls {
  readonly caFile?: string
  readonly certFile?: string
  readonly keyFile?: string
  readonly insecure?: boolean
}

export interface DiscoverySettings {
  /** A worker that is no longer found gets no new requests at once, and is removed after this time, when its last request has ended. */
  readonly removeAfterMs: number
  /** Wait after a look that failed, doubled each time. */
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
  /** As dns-target.ts reads them. */
  readonly prefill?: string
  readonly decode?: string
  readonly server?: string
  readonly family: 'auto' | 'ipv4' | 'ipv6'
  readonly intervalMs: number
}

export interface KubernetesDiscovery {
  readonly enabled: boolean
  /** Labels of EndpointSlices, KEY=VALUE each. */
  readonly prefillSelector: readonly string[]
  readonly decodeSelector: readonly string[]
  /** Absent: all. */
  readonly namespace?: string
  readonly port?: number
  readonly scheme: 'http' | 'https'
  /** These three are the cluster's own in a pod. */
  readonly apiUrl?: string
  readonly tokenFile?: string
  readonly caFile?: string
  /** A watch on which nothing comes for so long is begun anew. */
  readonly silentMs: number
}

export interface RoutingSettings {
  readonly policy: PolicyName
  readonly prefillPolicy: PrefillPolicyName
  /** Locality band of eldr. */
  readonly tau: number
  readonly artifact?: string
  /** Cost profile of union. */
  readonly profile?: string
  /** Leading tokens of a prompt (4 bytes of text count as one) that prefix_hash looks at, and the load at which it looks elsewhere. */
  readonly prefixTokens: number
  readonly prefixLoadFactor: number
  /** A hand-off whose counts cover less of the prompt is routed by load. */
  readonly minCovered: number
  /** When the number of decode workers is not that of the artifact's clusters: fit anew for theirs, or leave it. */
  readonly refit: 'auto' | 'off'
  /** Hand prompt token ids of a chat from prefill to decode, so that the template runs once. */
  readonly reuseTokenIds: boolean
}

export interface ReplicaSettings {
  /** Of a Redis or Valkey, maybe with a password, which is secret; absent: this gateway is alone. */
  readonly url?: string
  /** Authority of its certificate. */
  readonly caFile?: string
  /** Unique; made up unless told. */
  readonly id?: string
  /** Gateways with the same one are replicas of each other. */
  readonly namespace: string
  readonly publishMs: number
  /** Between two tellings of what union knows, and how much of it a second. */
  readonly unionMs: number
  readonly bytesPerSecond: number
  readonly leaseMs: number
  readonly timeoutMs: number
  readonly retryMs: number
  /** Changes by the admin API outlive the last replica by this time. */
  readonly changesKeptMs: number
  readonly artifactBytes: number
}

export interface LimitSettings {
  /** Requests in the gateway at once; more wait in the queue. 0 is no limit. */
  readonly maxConcurrentRequests: number
  readonly queueSize: number
  readonly queueTimeoutMs: number
  /** Choices × prompts that one request may ask for. */
  readonly maxChoices: number
}

export interface TimeoutSettings {
  readonly connectMs: number
  /** From dispatch to the whole answer of the prefill leg. */
  readonly prefillMs: number
  /** From dispatch of the decode leg to its first byte of body. */
  readonly firstTokenMs: number
  readonly betweenTokensMs: number
  readonly requestMs: number
}

export interface RetrySettings {
  /** Of each leg, beyond the first try. */
  readonly max: number
  /** Retries may be this share of requests (with a few to spare), so that an outage is not made worse. */
  readonly budgetShare: number
  readonly backoffMs: number
}

export interface LeaseSettings {
  /** kv_lease_duration of the prefill workers. */
  readonly durationMs: number
  /** A hand-off older than this share of the lease is not used. */
  readonly usableShare: number
}

export interface BreakerSettings {
  /** Opens after so many failures in a row … */
  readonly consecutiveFailures: number
  /** … or when, of at least `windowRequests` ends within the window, this share were failures. */
  readonly windowMs: number
  readonly windowRequests: number
  readonly windowFailureShare: number
  /** Then one probe is let through. */
  readonly openMs: number
}

export interface HealthSettings {
  readonly path: string
  readonly intervalMs: number
  readonly timeoutMs: number
  /** Checks in a row that take a worker out, and that bring it back. */
  readonly failures: number
  readonly successes: number
}

export const LOG_LEVELS = ['debug', 'info', 'warn', 'error', 'silent'] as const
export type LogLevel = (typeof LOG_LEVELS)[number]

export interface ObserveSettings {
  readonly logLevel: LogLevel
  readonly logFormat: 'auto' | 'json' | 'pretty'
  /** X-Eldr-* response headers on every answer; otherwise only for those that may ask (debug-headers.ts). */
  readonly debugHeaders: boolean
  /** Decisions kept for /eldr/decisions. */
  readonly decisionsKept: number
  /** Who may look at it: those who may use the admin API, anybody, nobody. */
  readonly dashboard: 'admin' | 'open' | 'off'
  readonly traces: TraceSettings
}

export interface TraceSettings {
  /** Of a collector that takes OTLP over HTTP; absent: no traces. */
  readonly endpoint?: string
  /** Secrets: NAME=VALUE. */
  readonly headers: readonly string[]
  readonly serviceName: string
  /** Share of the requests whose caller has not decided it. */
  readonly sampleRatio: number
  /** A batch goes out when it has so many spans, or after so long. */
  readonly batchSpans: number
  readonly everyMs: number
  /** Spans that may wait for the collector; more are dropped. */
  readonly queueSpans: number
  /** The collector must have answered within this time. */
  readonly timeoutMs: number
  /** How long the last traces may take when the gateway ends. */
  readonly flushMs: number
}
