/** How a request that was to be generated ended, and what its client is told of it. */
import type { Role } from '../../cluster/worker.ts'
import { type RefusalCode, Refusal } from '../http/refusal.ts'
import type { Exchange } from '../http/exchange.ts'
import type { LegEnd } from './leg-plan.ts'
import type { Outcome } from '../observe/metrics/metrics.ts'
import { workersFull } from './prefill-leg.ts'

type Failed = Extract<LegEnd, { kind: 'failed' }>

export function noWorker(role: Role): Refusal {
  return new Refusal(role === 'decode' ? 'ELDR_NO_DECODE_WORKER' : 'ELDR_NO_PREFILL_WORKER', {
    retryAfterSeconds: 1,
  })
}

const CODES: Readonly<Record<Role, { readonly timeout: RefusalCode; readonly other: RefusalCode }>> = {
  prefill: { timeout: 'ELDR_PREFILL_TIMEOUT', other: 'ELDR_PREFILL_FAILED' },
  decode: { timeout: 'ELDR_DECODE_TIMEOUT', other: 'ELDR_DECODE_FAILED' },
}

export function refusalOf(role: Role, { failure, status }: Failed): Refusal {
  if (status === 429) return workersFull()
  return new Refusal(CODES[role][failure.kind === 'timeout' ? 'timeout' : 'other'], { retryAfterSeconds: 1 })
}

export function outcomeOf(exchange: Exchange, end: LegEnd): Outcome {
  if (end.kind === 'served') return end.status === 200 ? 'ok' : 'worker_refused'
  if (end.kind === 'failed') return 'broken'
  return stopped(exchange, end.begun)
}

/** Whoever is there and has seen nothing yet is told; the leg has told those that have. */
export function stopped(exchange: Exchange, begun = false): Outcome {
  const { refusal } = exchange
  if (refusal !== undefined && !begun) throw refusal
  if (exchange.stopped === 'client_gone' || exchange.stopped === 'client_stalled') return exchange.stopped
  if (exchange.stopped === 'part_failed') return 'failed' // the part that failed says why
  return exchange.stopped === 'shutdown' || exchange.stopped === 'fault' ? 'broken' : 'timeout'
}
