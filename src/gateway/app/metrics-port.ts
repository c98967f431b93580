/** The separate port of /metrics. The process that is being replaced closes it for its successor. */
import type { Server } from 'node:http'
import { setTimeout as wait } from 'node:timers/promises'
import { EldrError } from '../../errors.ts'
import type { ServerSettings } from '../config/settings.ts'
import { createMetricsListener } from '../control/admin/metrics-listener.ts'
import { listen } from '../http/listen.ts'
import type { Metrics } from '../observe/metrics/metrics.ts'

/** How long a successor waits for the port. */
const FREE_MS = 2_000
const RETRY_MS = 10

export class MetricsPort {
  readonly #settings: Pick<ServerSettings, 'host' | 'metricsPort'>
  readonly #metrics: Metrics
  #server: Server | undefined

  constructor(settings: Pick<ServerSettings, 'host' | 'metricsPort'>, metrics: Metrics) {
    this.#settings = settings
    this.#metrics = metrics
  }

  /** Does nothing if no port is configured. `waitMs`: for another process to close it. */
  async open(waitMs = 0): Promise<void> {
    const { host, metricsPort } = this.#settings
    if (metricsPort === undefined || this.#server !== undefined) return
    const untilMs = performance.now() + waitMs
    for (;;) {
      const server = createMetricsListener(this.#metrics)
      try {
        await listen(server, host, metricsPort)
        this.#server = server
        return
      } catch (error) {
        if (!(error instanceof EldrError) || performance.now() >= untilMs) throw error
      }
      await wait(RETRY_MS)
    }
  }

  /** For a process that replaces another one. */
  takeOver(): Promise<void> {
    return this.open(FREE_MS)
  }

  close(): Promise<void> {
    const server = this.#server
    this.#server = undefined
    if (server === undefined) return Promise.resolve()
    server.closeAllConnections()
    return new Promise(resolve => server.close(() => resolve()))
  }
}
