/** How spans of legs and decisions end: what an operator wants to know of them, and why they failed. */
import type { Exchange, StopReason } from '../../http/exchange.ts'
import type { LegEnd } from '../../flow/leg-plan.ts'
import type { DecodePlacement } from '../../routing/router.ts'
import type { RequestTrace } from './request-trace.ts'
import { KIND, real, type Span } from './span.ts'

/** That a client leaves is nobody's failure. */
export function legStopped(span: Span, reason: StopReason | undefined, atMs?: number): void {
  span.set({ 'eldr.stopped': reason })
  if (reason !== 'client_gone' && reason !== 'client_stalled' && reason !== undefined)
    span.failed(reason, `stopped: ${reason}`)
  span.end(atMs)
}

/** `tokens`: that the client got. */
export function legEnded(
  span: Span,
  end: LegEnd,
  reason: StopReason | undefined,
  tokens: number | undefined,
): void {
  span.set({ 'eldr.output_tokens': tokens })
  if (end.kind === 'stopped') return legStopped(span, reason)
  span.set({ 'http.response.status_code': end.status })
  if (end.kind === 'failed') span.failed(end.failure.kind, end.failure.message)
  else if (end.status >= 400) span.failed(String(end.status), `status ${end.status}`)
  return span.end()
}

/** The decision, which has been made. */
export function routed(
  trace: RequestTrace,
  place: DecodePlacement | undefined,
  startMs: number,
  part: string | undefined,
): void {
  const span = trace.child('route', KIND.internal, startMs)
  if (place === undefined) span?.failed('no_worker', 'no decode worker takes requests')
  else {
    const { dispatch, decision, policy, similarity, covered } = place
    span?.set({
      'eldr.policy': policy,
      'eldr.reason': decision.reason,
      'eldr.worker': dispatch.worker.id,
      'eldr.similarity': real(similarity),
      'eldr.coverage': real(covered),
      'eldr.band_size': decision.band,
      'eldr.part': part,
    })
  }
  span?.end()
}

/** Of a request that was split, whose part it is. */
export function partOf(exchange: Exchange, requestId: string): string | undefined {
  return requestId === exchange.id ? undefined : requestId
}
