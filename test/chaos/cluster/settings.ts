/**
 * Settings of the cluster: short, so that faults show soon, but above what two busy cores need for the tiny
 * model. Replies come at the pace of a slow GPU, so that streams last for seconds and cost little.
 */
export const POLICY = 'jsq'
export const TAU = 0.1
export const ADMIN_TOKEN = 'chaos-admin'

/** Lease of the blocks at a prefill worker. */
const KV_LEASE_MS = 5_000
const REQUEST_MS = 20_000
/** Limit of a request as the checker sees it: the gateway's own, and time for a busy machine. */
export const LIMIT_MS = REQUEST_MS + 5_000
/** The client's patience. */
export const GIVE_UP_MS = LIMIT_MS + 5_000

export const GATEWAY_SETTINGS = {
  timeouts: {
    connectMs: 1_000,
    prefillMs: 8_000,
    firstTokenMs: 7_000,
    betweenTokensMs: 3_000,
    requestMs: REQUEST_MS,
  },
  lease: { durationMs: KV_LEASE_MS },
  health: { intervalMs: 500, timeoutMs: 3_000 },
  breaker: { consecutiveFailures: 3, openMs: 1_000 },
  replicas: { leaseMs: 2_000, timeoutMs: 1_500, retryMs: 100 },
  observe: { logLevel: 'info', logFormat: 'json', debugHeaders: true },
}
export const SERVER_SETTINGS = {
  processes: 2,
  clientStallMs: 2_000,
  shutdownGraceMs: 8_000,
  maxBodyBytes: 262_144,
}

export const WORKER_FLAGS = [
  '--backend',
  'tiny',
  '--pace',
  'h200-first',
  '--speed',
  '0.08',
  '--lease-ms',
  String(KV_LEASE_MS),
  '--client-stall-ms',
  '3000',
  '--grace-ms',
  '1000',
  '--json-ready',
  '--log-level',
  'warn',
]
