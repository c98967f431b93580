/** What all requests of a worker’s server share. */
import type { Logger } from 'pino'
import type { KvLimits } from '../kv/kv-client.ts'
import type { LeaseBook } from '../kv/leases.ts'
import type { WorkerEngine } from '../types.ts'
import type { SamplingDefaults } from './api-request.ts'
import type { DecodedLog } from './decoded-log.ts'
import type { HandoffOrigin } from './handoff-params.ts'
import type { LiveRequests } from './live-requests.ts'
import type { WorkerMetrics } from './metrics.ts'
import type { BodyLimits } from './read-body.ts'
import type { UnreadHandoffs } from './unread-handoffs.ts'

export const ROLES = ['prefill', 'decode', 'both'] as const
export type WorkerRole = (typeof ROLES)[number]

export interface ServerSettings {
  readonly role: WorkerRole
  /** Name of the model in the API. */
  readonly model: string
  /** Maximum tokens of prompt and response together. */
  readonly maxModelLen: number
  /** Requests in the trace; undefined without a trace: `eldr_row` is then refused. */
  readonly rows: number | undefined
  /** Sampling defaults from the model’s files. */
  readonly sampling: SamplingDefaults
  /** Report `cached_tokens` in usage, like vLLM’s --enable-prompt-tokens-details. */
  readonly promptDetails: boolean
  readonly maxBodyBytes: number
  /** Limit on all bodies being read. */
  readonly bodyBudgetBytes: number
  /** How long a client may read nothing from its stream. */
  readonly clientStallMs: number
  readonly leaseMs: number
  readonly kvLimits: KvLimits
}

export interface WorkerContext {
  readonly settings: ServerSettings
  /** All engines of the server by rank, including this one. They share requests, bodies and connections. */
  readonly ranks: readonly WorkerContext[]
  readonly engine: WorkerEngine
  readonly engineId: string
  readonly metrics: WorkerMetrics
  readonly decoded: DecodedLog
  readonly log: Logger
  readonly live: LiveRequests
  readonly bodies: BodyLimits
  /** Defined on workers that prefill. */
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
