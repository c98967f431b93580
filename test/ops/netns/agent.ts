/** A process on a machine of the network (agent.mjs), told what to do from here. */
import type { ChildProcess } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import type { Network } from './network.ts'

export interface Outcome {
  readonly gateway: string
  readonly stream: boolean
  /**
   * ok: all tokens and the end; told: an error in words; left: the client went, as it was told to; broken,
   * hung, wrong: never right while
   * the client itself can be reached.
   */
  readonly end: 'ok' | 'told' | 'left' | 'broken' | 'hung' | 'wrong'
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
  /** A request that has not ended by then hangs. */
  readonly patienceMs: number
}

interface Answer {
  readonly id: number
  readonly error?: string
  readonly begun?: number
}

const PROGRAM = fileURLToPath(new URL('agent.mjs', import.meta.url))

export class Agent {
  readonly #child: ChildProcess
  readonly #waiting = new Map<
    number,
    { resolve(answer: never): void; reject(error: Error): void; begun?: () => void }
  >()
  #said = ''
  #ids = 0

  private constructor(child: ChildProcess) {
    this.#child = child
    child.stderr!.on('data', (chunk: Buffer) => (this.#said += chunk.toString()))
    createInterface({ input: child.stdout! }).on('line', line => this.#heard(JSON.parse(line) as Answer))
    child.once('exit', () => {
      for (const { reject } of this.#waiting.values()) reject(new Error(`the agent has ended: ${this.#said}`))
    })
  }

  static async start<Name extends string>(network: Network<Name>, name: Name): Promise<Agent> {
    const agent = new Agent(network.spawn(name, [process.execPath, PROGRAM]))
    // It says number 0 of itself when it can be told something.
    await new Promise<void>((resolve, reject) => agent.#waiting.set(0, { resolve, reject }))
    return agent
  }

  /** Rejects where no answer comes. */
  ask(url: string, ask: Ask = {}): Promise<{ status: number; text: string; tookMs: number }> {
    return this.#tell('ask', { url, ...ask })
  }

  async store(url: string, ...command: string[]): Promise<unknown> {
    return (await this.#tell<{ reply: unknown }>('store', { url, command })).reply
  }

  /** Requests one after the other on lanes to each gateway, two of three streamed. */
  async start(options: TrafficOptions): Promise<void> {
    await this.#tell('start', { ...options })
  }

  /** What has ended since the last time. */
  async take(): Promise<Outcome[]> {
    return (await this.#tell<{ outcomes: Outcome[] }>('take', {})).outcomes
  }

  /** Sends no more; what has ended since the last time, once all has. */
  async stop(): Promise<Outcome[]> {
    return (await this.#tell<{ outcomes: Outcome[] }>('stop', {})).outcomes
  }

  /**
   * Several streams at once. Resolves when each has begun; `ended` when all have ended. `leave` ends them
   * from here.
   */
  async streams(options: {
    gateway: string
    url: string
    count: number
    tokens: number
    patienceMs: number
  }) {
    let missing = options.count
    let begin = () => {}
    const begun = new Promise<void>(resolve => (begin = resolve))
    const streams = this.#ids + 1
    const ended = this.#tell<{ outcomes: Outcome[] }>('streams', options, () => {
      if (--missing === 0) begin()
    }).then(({ outcomes }) => outcomes)
    await Promise.race([begun, ended])
    return { ended, leave: () => this.#tell<object>('leave', { streams }) }
  }

  #tell<T>(work: string, details: object, begun?: () => void): Promise<T> {
    const id = ++this.#ids
    return new Promise<T>((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject, begun })
      this.#child.stdin!.write(`${JSON.stringify({ id, work, ...details })}\n`)
    })
  }

  #heard({ id, ...answer }: Answer): void {
    const waiting = this.#waiting.get(id)
    if (answer.begun !== undefined) return waiting?.begun?.()
    this.#waiting.delete(id)
    if (answer.error === undefined) waiting?.resolve(answer as never)
    else waiting?.reject(new Error(answer.error))
  }
}
