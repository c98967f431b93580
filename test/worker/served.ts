/** A worker's server on a scripted engine, in this process, on real sockets. */
import { createLog } from '../../src/gateway/observe/log/log.ts'
import type { ServerSettings } from '../../src/worker/server/context.ts'
import { startWorker, type Worker } from '../../src/worker/server/start-worker.ts'
import { ScriptedEngine } from './scripted-engine.ts'

export interface Served {
  readonly engine: ScriptedEngine
  readonly worker: Worker
  readonly url: string
  post(path: string, body: unknown, init?: RequestInit): Promise<Response>
  /** Throws if a request is in flight; forgets finished ones. */
  checkIdle(): void
}

export async function serveScripted(
  settings: Partial<ServerSettings> = {},
  log = createLog({ logLevel: 'silent', logFormat: 'json' }),
): Promise<Served> {
  const engine = new ScriptedEngine()
  const worker = await startWorker({
    host: '127.0.0.1',
    port: 0,
    kvPort: 0,
    kvHost: '127.0.0.1',
    settings: {
      role: 'both',
      model: 'm',
      maxModelLen: 200,
      rows: 10,
      promptDetails: false,
      leaseMs: 30_000,
      ...settings,
    },
    engine,
    log,
    graceMs: 0,
  })
  return {
    engine,
    worker,
    url: worker.url,
    post: postTo(worker.url),
    checkIdle() {
      const { size, notices } = worker.context.live
      if (size + notices > 0) throw new Error(`${size} requests and ${notices} notices are under way`)
      engine.requests.length = 0
    },
  }
}

export function postTo(url: string): Served['post'] {
  return (path, body, init) =>
    fetch(`${url}${path}`, {
      method: 'POST',
      body: typeof body === 'string' ? body : JSON.stringify(body),
      ...init,
      headers: { 'content-type': 'application/json', ...init?.headers },
    })
}

/** Data of the events of a stream, including [DONE]. */
export async function eventsOf(response: Response): Promise<string[]> {
  return (await response.text())
    .split('\n\n')
    .filter(event => event !== '')
    .map(event => event.replace(/^data: /, ''))
}
