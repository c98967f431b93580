/** Connection pool of one worker: one connection per running request, and idle ones. */
import { isIP } from 'node:net'
import type { ConnectionOptions } from 'node:tls'
import type { UpstreamCall } from './call.ts'
import { type ConnectionPlan, WorkerConnection } from './connection.ts'
import { UpstreamFailure } from './failure.ts'

export interface PoolOptions {
  readonly connectMs: number
  /** How long an idle connection is kept. */
  readonly idleConnectionMs: number
  readonly tls?: ConnectionOptions
}

/** Connections and traffic of one worker. */
export interface WorkerTraffic {
  readonly busy: number
  readonly idle: number
  readonly opened: number
  readonly receivedBytes: number
  readonly sentBytes: number
}

export class ConnectionPool implements Pick<ConnectionPlan, 'onIdle' | 'onClosed'> {
  /** For the Host header. */
  readonly authority: string
  readonly #plan: ConnectionPlan
  readonly #idleMs: number
  readonly #all = new Set<WorkerConnection>()
  /** A stack: the last used is reused first; the first has been idle longest. */
  readonly #idle: { readonly connection: WorkerConnection; readonly sinceMs: number }[] = []
  #sweep: NodeJS.Timeout | undefined
  #closed = false
  #opened = 0
  /** Totals of closed connections. */
  #receivedBytes = 0
  #sentBytes = 0

  constructor(origin: string, { connectMs, idleConnectionMs, tls }: PoolOptions) {
    const { protocol, hostname, port, host } = new URL(origin)
    const secure = protocol === 'https:'
    const name = hostname.replace(/^\[|\]$/g, '')
    this.authority = host
    this.#idleMs = idleConnectionMs
    this.#plan = {
      host: name,
      port: Number(port) || (secure ? 443 : 80),
      connectMs,
      tls: secure
        ? { servername: isIP(name) === 0 ? name : undefined, ALPNProtocols: ['http/1.1'], ...tls }
        : undefined,
      onIdle: connection => this.onIdle(connection),
      onStale: (call, head, body) => this.#retry(call, head, body),
      onClosed: connection => this.onClosed(connection),
    }
  }

  run(call: UpstreamCall, head: string, body: Buffer | undefined): void {
    this.#connection().run(call, head, body)
  }

  /**
   * Sends a request again whose idle connection the worker had closed. On a new connection it succeeds or the
   * worker is failing.
   */
  #retry(call: UpstreamCall, head: string, body: Buffer | undefined): void {
    if (this.#closed) call.fail(new UpstreamFailure('reset', 'connection closed'))
    else this.#open().run(call, head, body)
  }

  #connection(): WorkerConnection {
    const last = this.#idle.pop()
    // If the event loop was blocked, the connection may be past its limit and about to be closed by the
    // worker.
    if (last !== undefined && performance.now() - last.sinceMs < this.#idleMs) return last.connection
    last?.connection.drop()
    return this.#open()
  }

  #open(): WorkerConnection {
    const connection = new WorkerConnection(this.#plan)
    this.#all.add(connection)
    this.#opened++
    return connection
  }

  onIdle(connection: WorkerConnection): void {
    this.#idle.push({ connection, sinceMs: performance.now() })
    this.#sweep ??= setTimeout(() => this.#dropOld(), this.#idleMs).unref()
  }

  onClosed(connection: WorkerConnection): void {
    if (this.#all.delete(connection)) {
      const { received, sent } = connection.bytes
      this.#receivedBytes += received
      this.#sentBytes += sent
    }
    const at = this.#idle.findIndex(idle => idle.connection === connection)
    if (at >= 0) this.#idle.splice(at, 1)
  }

  traffic(): WorkerTraffic {
    let [receivedBytes, sentBytes] = [this.#receivedBytes, this.#sentBytes]
    for (const { bytes } of this.#all) {
      receivedBytes += bytes.received
      sentBytes += bytes.sent
    }
    return {
      busy: this.#all.size - this.#idle.length,
      idle: this.#idle.length,
      opened: this.#opened,
      receivedBytes,
      sentBytes,
    }
  }

  /** Running requests fail. */
  close(): void {
    this.#closed = true
    clearTimeout(this.#sweep)
    for (const connection of this.#all) connection.close()
    this.#idle.length = 0
  }

  #dropOld(): void {
    this.#sweep = undefined
    const nowMs = performance.now()
    while (this.#idle.length > 0 && nowMs - this.#idle[0]!.sinceMs >= this.#idleMs)
      this.#idle.shift()!.connection.drop()
    if (this.#idle.length === 0) return
    this.#sweep = setTimeout(() => this.#dropOld(), this.#idleMs - (nowMs - this.#idle[0]!.sinceMs)).unref()
  }
}
