/**
 * Runs `eldr up` and similar commands from dist/ as users do, in a separate folder, and reads their output
 * line by line.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createConnection } from 'node:net'
import { createInterface } from 'node:readline'
import { polled, PROGRAM } from '../worker/processes.ts'

export interface UpEvent {
  readonly event: string
  readonly [key: string]: unknown
}

export interface SeenWorker {
  readonly name: string
  readonly pid?: number
  readonly state: string
  readonly restarts: number
  readonly rssBytes: number | null
  readonly step: { readonly batch: number; readonly active: number; readonly tpotMs: number } | null
}

export interface View extends UpEvent {
  readonly policy: string | null
  readonly workers: readonly SeenWorker[]
  readonly policies: readonly {
    readonly policy: string
    readonly tokens: number
    readonly step: object | null
  }[]
}

const running = new Set<ChildProcess>()

/** A command that prints one JSON object per line. */
export class UpProcess {
  readonly child: ChildProcess
  readonly exited: Promise<number | null>
  readonly #events: UpEvent[] = []
  readonly #waiting = new Set<() => void>()
  #said = ''

  constructor(folder: string, ...args: string[]) {
    this.child = spawn(process.execPath, [PROGRAM, ...args], {
      cwd: folder,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    running.add(this.child)
    this.exited = once(this.child, 'exit').then(([code]) => {
      running.delete(this.child)
      this.#tell()
      return code as number | null
    })
    this.child.stderr!.on('data', (chunk: Buffer) => (this.#said += chunk.toString()))
    createInterface({ input: this.child.stdout! }).on('line', line => {
      this.#events.push(JSON.parse(line) as UpEvent)
      this.#tell()
    })
  }

  /** Its standard error. */
  get said(): string {
    return this.#said
  }

  /** The first matching event, past or future; fails if the process ends without one. */
  async event<T extends UpEvent>(name: string, wanted: (event: T) => boolean = () => true): Promise<T> {
    for (let at = 0; ; at++) {
      while (at >= this.#events.length) {
        if (this.child.exitCode !== null || this.child.signalCode !== null)
          throw new Error(
            `ended without ${name} as wanted: ${this.#said} ${JSON.stringify(this.#events.slice(-3))}`,
          )
        await new Promise<void>(resolve => this.#waiting.add(resolve))
      }
      const event = this.#events[at]!
      if (event.event === name && wanted(event as T)) return event as T
    }
  }

  /** The first matching event from now on. */
  async nextView(wanted: (view: View) => boolean): Promise<View> {
    const from = this.#events.length
    return this.event<View>('view', view => this.#events.indexOf(view) >= from && wanted(view))
  }

  #tell(): void {
    for (const resolve of this.#waiting) resolve()
    this.#waiting.clear()
  }
}

/** Kills all commands that tests left running; their child processes end with them. */
export function killUps(): void {
  for (const child of running) child.kill('SIGKILL')
}

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

export async function allGone(pids: readonly number[]): Promise<void> {
  await polled(
    async () => pids.filter(isAlive),
    alive => alive.length === 0,
    'all processes gone',
  )
}

export function listens(url: string): Promise<boolean> {
  const { hostname, port } = new URL(url)
  return new Promise(resolve => {
    const socket = createConnection(Number(port), hostname)
    socket.once('connect', () => {
      socket.destroy()
      resolve(true)
    })
    socket.once('error', () => resolve(false))
  })
}
