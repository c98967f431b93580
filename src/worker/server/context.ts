/** What every request of a worker's server shares. */
import type { Logger } from 'pino'
import type { KvLimits } from '../kv/kv-client.ts'
import type { LeaseBook } from '../kv/leases.ts'
import type { WorkerEngine } from '../types.ts'
import type { SamplingDefaults } from './api-request.ts'
import type { HandoffOrigin } from './handoff-params.ts'
import type { LiveRequests } from './live-requests.ts'
import type { WorkerMetrics } from './metrics.ts'
import type { BodyLimits } from './read-body.ts'
import type { UnreadHandoffs } from './unread-handoffs.ts'

export const ROLES = ['prefill', 'decode', 'both'] as const
export type WorkerRole = (typeof ROLES)[number]

export interface ServerSettings {
  readonly role: WorkerRole
  /** As clients call it. */
  readonly model: string
  /** Tokens of prompt and answer together. */
  readonly maxModelLen: number
  /** Of the trace; undefined where there is none, and `eldr_row` is refused. */
  readonly rows: number | undefined
  /** What the model's files say of sampling, where a request says nothing. */
  readonly sampling: SamplingDefaults
  /** `cached_tokens` in usage, as vLLM's --enable-prompt-tokens-details. */
  readonly promptDetails: boolean
  readonly maxBodyBytes: number
  /** Of all bodies that are being read. */
  readonly bodyBudgetBytes: number
  /** How long a client may take nothing of its stream. */
  readonly clientStallMs: number
  readonly leaseMs: number
  readonly kvLimits: KvLimits
}

export interface WorkerContext {
  readonly settings: ServerSettings
  /** All engines of the server by their rank, this one among them. They share requests, bodies and connections. */
  readonly ranks: readonly WorkerContext[]
  readonly engine: WorkerEngine
  readonly engineId: string
  readonly metrics: WorkerMetrics
  readonly log: Logger
  readonly live: LiveRequests
  readonly bodies: BodyLimits
  /** Of a worker that prefills. */
  readonly handoffs:
    | {
        readonly leases: LeaseBook
        readonly origin: HandoffOrigin
        readonly server: { readonly connections: number }
        readonly unread: UnreadHandoffs
      }
    | undefined
  /** Connections of the HTTP server. */
  readonly connections: () => number
}
