/**
 * X-Eldr-* response headers: which workers served a request, and why. Worker ids are addresses by default, so
 * only clients that may use the admin API get these headers, or all clients if the configuration says so.
 */
import type { IncomingMessage } from 'node:http'
import { isFromHere } from '../http/admin-guard.ts'
import { createSecretCheck } from '../http/auth.ts'
import type { Settings } from '../config/settings.ts'
import type { Attempt, AttemptEnd, Decided, RequestListener, RequestObserver } from './request-observer.ts'

/** Requested by `X-Eldr-Debug: TOKEN`, or without an admin token by `X-Eldr-Debug: 1` from this machine. */
export function debugHeaders({ observe, server: { adminToken } }: Settings): RequestObserver {
  const isToken = adminToken === undefined ? undefined : createSecretCheck([adminToken])
  const isRequested = (request: IncomingMessage): boolean => {
    const value = request.headers['x-eldr-debug']
    if (typeof value !== 'string') return false
    return isToken === undefined ? value === '1' && isFromHere(request) : isToken(value)
  }
  return {
    observe({ exchange, route }) {
      if (route.kind !== 'generate' || !(observe.debugHeaders || isRequested(exchange.request)))
        return undefined
      return new DebugHeaders(exchange.headers)
    },
  }
}

class DebugHeaders implements RequestListener {
  readonly #headers: Record<string, string>

  constructor(headers: Record<string, string>) {
    this.#headers = headers
  }

  attemptStarted({ leg, servesClient, worker }: Attempt): void {
    if (servesClient) this.#headers[`x-eldr-${leg}-worker`] = worker.id
  }

  attemptEnded({ worker }: Attempt, end: AttemptEnd): void {
    if (end.kind === 'handed_off') this.#headers['x-eldr-prefill-worker'] = worker.id
  }

  decided({ placement }: Decided): void {
    if (placement !== undefined) this.#headers['x-eldr-reason'] = placement.decision.reason
  }
}
