/** How a generation ended, and what its client is told. */
import type { Role } from '../../cluster/worker.ts'
import type { Exchange } from '../http/exchange.ts'
import { type RefusalCode, Refusal } from '../http/refusal.ts'
import type { Outcome } from '../observe/request-observer.ts'
import type { LegEnd } from './leg.ts'

type Failed = Extract<LegEnd, { kind: 'failed' }>

export function noWorker(role: Role): Refusal {
  return new Refusal(role === 'decode' ? 'ELDR_NO_DECODE_WORKER' : 'ELDR_NO_PREFILL_WORKER', {
    retryAfterSeconds: 1,
  })
}

export function workersFull(): Refusal {
  return new Refusal('ELDR_OVERLOADED', {
    words: 'The workers are full; try again later.',
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
  if (end.kind === 'served') return end.status < 400 ? 'ok' : 'worker_refused'
  if (end.kind === 'failed') return 'broken'
  return stoppedOutcome(exchange, end.begun)
}

/** Throws the refusal for a client that has seen nothing yet. If `begun`, the leg has told it. */
export function stoppedOutcome(exchange: Exchange, begun = false): Outcome {
  const { refusal } = exchange
  if (refusal !== undefined && !begun) throw refusal
  if (exchange.stopped === 'client_gone' || exchange.stopped === 'client_stalled') return exchange.stopped
  if (exchange.stopped === 'part_failed') return 'failed' // the part that failed says why
  return exchange.stopped === 'shutdown' || exchange.stopped === 'fault' ? 'broken' : 'timeout'
}
