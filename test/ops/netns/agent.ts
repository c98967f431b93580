/** Controls a process in a network namespace (agent.mjs). */
import type { ChildProcess } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import type { Network } from './network.ts'

export interface Outcome {
  readonly gateway: string
  readonly stream: boolean
  /**
   * ok: complete; error: an error response or event; left: cancelled by the test; broken, hung, wrong: never
   * acceptable while the client itself is reachable.
   */
  readonly end: 'ok' | 'error' | 'left' | 'broken' | 'hung' | 'wrong'
  readonly code: string
  readonly tokens: number
  readonly firstMs: number
  readonly totalMs: number
}

export interface Ask {
  readonly method?: string
  readonly headers?: Record<string, string>
  readonly body?: string
  readonly timeoutMs?: number
}

export interface TrafficOptions {
  readonly gateways: Readonly<Record<string, string>>
  readonly lanesEach: number
  readonly tokens: number
  /** A request that has not ended by then counts as hung. */
  readonly timeoutMs: number
}

interface Reply {
  readonly id: number
  readonly error?: string
  readonly begun?: number
}

const PROGRAM = fileURLToPath(new URL('agent.mjs', import.meta.url))

export class Agent {
  readonly #child: ChildProcess
  readonly #waiting = new Map<
    number,
    { resolve(reply: never): void; reject(error: Error): void; begun?: () => void }
  >()
  #stderr = ''
  #ids = 0

  private constructor(child: ChildProcess) {
    this.#child = child
    child.stderr!.on('data', (chunk: Buffer) => (this.#stderr += chunk.toString()))
    createInterface({ input: child.stdout! }).on('line', line => this.#received(JSON.parse(line) as Reply))
    child.once('exit', () => {
      for (const { reject } of this.#waiting.values()) reject(new Error(`the agent exited: ${this.#stderr}`))
    })
  }

  static async start<Name extends string>(network: Network<Name>, name: Name): Promise<Agent> {
    const agent = new Agent(network.spawn(name, [process.execPath, PROGRAM]))
    // It sends number 0 when it is ready.
    await new Promise<void>((resolve, reject) => agent.#waiting.set(0, { resolve, reject }))
    return agent
  }

  /** Rejects without a response. */
  ask(url: string, ask: Ask = {}): Promise<{ status: number; text: string; tookMs: number }> {
    return this.#send('ask', { url, ...ask })
  }

  async store(url: string, ...command: string[]): Promise<unknown> {
    return (await this.#send<{ reply: unknown }>('store', { url, command })).reply
  }

  /** Sends sequential requests on several lanes to each gateway, two of three streamed. */
  async start(options: TrafficOptions): Promise<void> {
    await this.#send('start', { ...options })
  }

  /** Requests that have ended since the last call. */
  async take(): Promise<Outcome[]> {
    return (await this.#send<{ outcomes: Outcome[] }>('take', {})).outcomes
  }

  /** Stops sending, waits for all requests, and returns those that ended since the last call. */
  async stop(): Promise<Outcome[]> {
    return (await this.#send<{ outcomes: Outcome[] }>('stop', {})).outcomes
  }

  /**
   * Concurrent streams. Resolves when each has started; `ended` resolves when all have ended. `leave` cancels
   * them.
   */
  async streams(options: { gateway: string; url: string; count: number; tokens: number; timeoutMs: number }) {
    let missing = options.count
    let begin = () => {}
    const begun = new Promise<void>(resolve => (begin = resolve))
    const streams = this.#ids + 1
    const ended = this.#send<{ outcomes: Outcome[] }>('streams', options, () => {
      if (--missing === 0) begin()
    }).then(({ outcomes }) => outcomes)
    await Promise.race([begun, ended])
    return { ended, leave: () => this.#send<object>('leave', { streams }) }
  }

  #send<T>(work: string, details: object, begun?: () => void): Promise<T> {
    const id = ++this.#ids
    return new Promise<T>((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject, begun })
      this.#child.stdin!.write(`${JSON.stringify({ id, work, ...details })}\n`)
    })
  }

  #received({ id, ...reply }: Reply): void {
    const waiting = this.#waiting.get(id)
    if (reply.begun !== undefined) return waiting?.begun?.()
    this.#waiting.delete(id)
    if (reply.error === undefined) waiting?.resolve(reply as never)
    else waiting?.reject(new Error(reply.error))
  }
}
