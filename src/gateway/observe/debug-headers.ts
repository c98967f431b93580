/**
 * X-Eldr-* headers of an answer: which workers served it, and why. They name workers, whose ids are addresses unless told otherwise, so
 * they are for whoever may use the admin API, or for everybody where the configuration says so.
 */
import type { IncomingMessage } from 'node:http'
import type { Role } from '../../cluster/worker.ts'
import { isFromHere } from '../http/admin-guard.ts'
import { createSecretCheck } from '../http/auth.ts'
import type { Settings } from '../config/settings.ts'
import type { Exchange } from '../http/exchange.ts'

export type NoteWorker = (exchange: Exchange, leg: Role, worker: string, reason?: string) => void

/** A request asks with `X-Eldr-Debug: 1` from the machine itself, or where an admin token is set with `X-Eldr-Debug: TOKEN`. */
export function createDebugHeaders({ observe, server: { adminToken } }: Settings): NoteWorker {
  const isToken = adminToken === undefined ? undefined : createSecretCheck([adminToken])
  const asks = (request: IncomingMessage): boolean => {
    const asked = request.headers['x-eldr-debug']
    if (typeof asked !== 'string') return false
    return isToken === undefined ? asked === '1' && isFromHere(request) : isToken(asked)
  }
  return ({ request, headers }, leg, worker, reason) => {
    if (!observe.debugHeaders && !asks(request)) return
    headers[`x-eldr-${leg}-worker`] = worker
    if (reason !== undefined) headers['x-eldr-reason'] = reason
  }
}
