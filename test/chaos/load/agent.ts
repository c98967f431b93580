/** Controls an agent process (agent-process.ts) on a machine. */
import type { ChildProcess } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import type { Running } from '../check/checker.ts'
import type { Machine, Machines } from '../cluster/machines.ts'
import type { Observation } from '../observation.ts'
import type { Ask, Asked } from './ask.ts'
import type { BrokenKind, BrokenResult } from './broken-clients.ts'
import type { LoadOptions } from './load.ts'
import type { Plant } from './planted-proxy.ts'

const TYPESCRIPT = new URL('../typescript.mjs', import.meta.url).href
const PROGRAM = fileURLToPath(new URL('agent-process.ts', import.meta.url))

interface Waiting {
  resolve(reply: never): void
  reject(error: Error): void
}

export class Agent {
  readonly #child: ChildProcess
  readonly #waiting = new Map<number, Waiting>()
  #stderr = ''
  #ids = 0

  private constructor(child: ChildProcess) {
    this.#child = child
    child.stdin!.on('error', () => {})
    child.stderr!.on(
      'data',
      (chunk: Buffer) => (this.#stderr = (this.#stderr + chunk.toString()).slice(-4_000)),
    )
    createInterface({ input: child.stdout! }).on('line', line => this.#received(line))
    child.once('exit', () => {
      for (const { reject } of this.#waiting.values()) reject(new Error(`the agent exited: ${this.#stderr}`))
    })
  }

  /** `caFile`: certificates that it trusts. */
  static async start(machines: Machines, name: Machine, caFile: string): Promise<Agent> {
    const command = [process.execPath, '--import', TYPESCRIPT, PROGRAM]
    const agent = new Agent(machines.spawn(name, command, { NODE_EXTRA_CA_CERTS: caFile }))
    await new Promise<void>((resolve, reject) => agent.#waiting.set(0, { resolve, reject }))
    return agent
  }

  /** Rejects without a response. */
  ask(ask: Ask): Promise<Asked> {
    return this.#send('ask', ask)
  }

  async load(options: LoadOptions): Promise<void> {
    await this.#send('load', options)
  }

  async resume(urls: Readonly<Record<string, string>>): Promise<void> {
    await this.#send('resume', { urls })
  }

  /** Resolves when the last request has ended. */
  async pause(): Promise<void> {
    await this.#send('pause', {})
  }

  take(): Promise<{ ended: Observation[]; running: Running[] }> {
    return this.#send('take', {})
  }

  async leave(share: number, seed: number): Promise<number> {
    return (await this.#send<{ left: number }>('leave', { share, seed })).left
  }

  async probe(each: number): Promise<Observation[]> {
    return (await this.#send<{ seen: Observation[] }>('probe', { each })).seen
  }

  broken(kind: BrokenKind, url: string): Promise<BrokenResult> {
    return this.#send('broken', { kind, url })
  }

  async plant(plant: Plant, url: string): Promise<string> {
    return (await this.#send<{ url: string }>('plant', { plant, url })).url
  }

  /** Fingerprint of the certificate that a new connection gets. */
  async certificate(host: string, port: number): Promise<string> {
    return (await this.#send<{ fingerprint: string }>('certificate', { host, port })).fingerprint
  }

  #send<T>(work: string, details: object): Promise<T> {
    const id = ++this.#ids
    return new Promise<T>((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject })
      this.#child.stdin!.write(`${JSON.stringify({ id, work, ...details })}\n`)
    })
  }

  #received(line: string): void {
    const { id, error, ...reply } = JSON.parse(line) as { id: number; error?: string }
    const waiting = this.#waiting.get(id)
    this.#waiting.delete(id)
    if (error === undefined) waiting?.resolve(reply as never)
    else waiting?.reject(new Error(error))
  }
}
