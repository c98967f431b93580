/** A program of the cluster that can be killed, stopped, slowed down and restarted in its place. */
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import type { Machine, Machines } from './machines.ts'

export interface ProgramOptions {
  readonly name: Machine
  readonly command: readonly string[]
  readonly env?: Readonly<Record<string, string>>
  /** Text of the line that says that it is ready. */
  readonly ready: string
  readonly line?: (line: string) => void
}

const START_MS = 90_000
const LINES_KEPT = 200
/** Share of the time that a slow process is stopped. */
const [SLOW_STOPPED_MS, SLOW_RUNNING_MS] = [90, 30]

export class Program {
  readonly name: Machine
  /** Last lines of its output. */
  readonly lines: string[] = []
  readonly #machines: Machines
  readonly #options: ProgramOptions
  #child: ChildProcess | undefined
  #starting: Promise<void> = Promise.resolve()

  constructor(machines: Machines, options: ProgramOptions) {
    this.name = options.name
    this.#machines = machines
    this.#options = options
  }

  get pid(): number | undefined {
    return this.isRunning ? this.#child!.pid : undefined
  }

  get isRunning(): boolean {
    return this.#child !== undefined && this.#child.exitCode === null && this.#child.signalCode === null
  }

  /** Resolves when it is ready. */
  start(): Promise<void> {
    return (this.#starting = this.#start())
  }

  async #start(): Promise<void> {
    const { name, command, env, ready, line: read } = this.#options
    const child = this.#machines.spawn(name, command, env)
    this.#child = child
    child.stdin?.on('error', () => {})
    let timer: NodeJS.Timeout | undefined
    await new Promise<void>((resolve, reject) => {
      const fail = (why: string) => reject(new Error(`${name} ${why}: ${this.lines.slice(-5).join('\n')}`))
      for (const input of [child.stdout!, child.stderr!])
        createInterface({ input }).on('line', line => {
          this.lines.push(line)
          if (this.lines.length > LINES_KEPT) this.lines.shift()
          read?.(line)
          if (line.includes(ready)) resolve()
        })
      timer = setTimeout(() => fail('is not ready'), START_MS)
      child.once('exit', code => fail(`exited with ${String(code)}`))
    }).finally(() => clearTimeout(timer))
  }

  /** Resolves when it has exited, so that its port is free. One that is starting is ended afterwards. */
  async end(signal: 'SIGKILL' | 'SIGTERM'): Promise<void> {
    await this.#starting
    if (!this.isRunning) return
    const exited = once(this.#child!, 'exit')
    this.#child!.kill(signal)
    if (signal === 'SIGTERM') this.#child!.kill('SIGCONT')
    await exited
  }
}

/** Sends a signal to a process that may have exited. */
export function signal(pid: number | undefined, name: NodeJS.Signals): void {
  if (pid === undefined) return
  try {
    process.kill(pid, name)
  } catch {
    // it has exited
  }
}

/** Stops the processes again and again for a short time. Returns what ends it. */
export function slowDown(pids: () => readonly (number | undefined)[]): () => void {
  const each = (name: NodeJS.Signals) => pids().forEach(pid => signal(pid, name))
  let timer: NodeJS.Timeout
  const stop = () => {
    each('SIGSTOP')
    timer = setTimeout(run, SLOW_STOPPED_MS)
  }
  const run = () => {
    each('SIGCONT')
    timer = setTimeout(stop, SLOW_RUNNING_MS)
  }
  stop()
  return () => {
    clearTimeout(timer)
    each('SIGCONT')
  }
}
