/** A supervised child process, restarted when it exits on its own. */
import { type ChildProcess, fork } from 'node:child_process'
import type { Socket } from 'node:net'
import type { Log } from '../../observe/log/log.ts'
import { logOutput } from '../../observe/log/log-output.ts'
import { type ThreadResult, unwrapResult } from '../../routing/thread-result.ts'
import type { FromChild, Step, ToOwner, ToRelay } from './supervisor-messages.ts'

const PROGRAMS = {
  owner: new URL('../../app/owner.js', import.meta.url),
  relay: new URL('../../app/relay.js', import.meta.url),
}

export interface MemberSpec {
  readonly name: string
  readonly program: keyof typeof PROGRAMS
  readonly log: Log
  /** How long it may serve what it has when it leaves. */
  readonly leaveMs?: number
  /** Sends the first message. */
  spawned(child: ChildProcess): void
  ready?(): void
  received?(message: FromChild): void
  /** The process has received everything sent before this ping. */
  pongReceived?(ping: number): void
  exited?(): void
}

/** Delays before restarts: the first is immediate, later ones double. */
const RESTART_DELAYS_MS = [0, 500, 1_000, 2_000, 4_000, 8_000] as const
/** A process that ran this long resets the delays. */
const STABLE_MS = 10_000
/** Time to exit after the grace period before it is killed. */
const KILL_MS = 5_000

/** Interval of the pings. */
export const CHECK_INTERVAL_MS = 500
/**
 * Missed pings after which a process counts as hung: 5 seconds. Slow work runs in threads, and the rest
 * blocks an event loop for a fraction of a second. Checks are counted instead of time, because time also
 * passes while the machine or this process is suspended.
 */
const MAX_MISSED = 10
/** Until it is ready: reading and checking a large artifact may block it, and it serves no request yet. */
const MAX_MISSED_AT_START = 120
/** Missed pings after which new connections go to other relays. */
const SLOW_MISSED = 2

export class Member {
  readonly name: string
  readonly #spec: MemberSpec
  #child: ChildProcess | undefined
  #isReady = false
  #isLeaving = false
  /** It has been ready once: from then on it is restarted. */
  #wasReady = false
  #stopping = false
  #restarts = 0
  #pings = 0
  #pongs = 0
  #missed = 0
  #timer: NodeJS.Timeout | undefined
  /** Steps that were asked for and are not done. */
  readonly #steps = new Map<Step, (failure?: ThreadResult) => void>()

  constructor(spec: MemberSpec) {
    this.name = spec.name
    this.#spec = spec
  }

  get isReady(): boolean {
    return this.#isReady
  }

  /** It was asked to leave: new connections go to other relays, if there are any. */
  get isLeaving(): boolean {
    return this.#isLeaving
  }

  /** It has not responded to the last pings. */
  get isSlow(): boolean {
    return this.#missed >= SLOW_MISSED
  }

  /** Number of the last ping. */
  get pings(): number {
    return this.#pings
  }

  /** Called every CHECK_INTERVAL_MS. A process that hangs is killed, and so restarted. */
  check(): void {
    const child = this.#child
    if (child?.connected !== true) return
    if (this.#pongs !== this.#pings) this.#missed++
    if (this.#missed < (this.#isReady ? MAX_MISSED : MAX_MISSED_AT_START))
      return this.tell({ kind: 'ping', ping: ++this.#pings })
    const silentMs = this.#missed * CHECK_INTERVAL_MS
    this.#spec.log.error({ process: this.name, pid: child.pid, silentMs }, 'process unresponsive, killing it')
    this.#missed = 0
    child.kill('SIGKILL')
  }

  /** For the exit of the supervisor. */
  kill(): void {
    this.#child?.kill('SIGKILL')
  }

  /** Rejects with the reason if it cannot start. The first start is not retried. */
  start(): Promise<void> {
    return new Promise((resolve, reject) => this.#run(resolve, reject))
  }

  tell(message: ToOwner | ToRelay): void {
    if (this.#child?.connected === true) this.#child.send(message, () => {}) // it may just have exited
  }

  /** Resolves when it is done, or the process has exited. Rejects with the reason if it fails. */
  async ask(step: Step, message: ToOwner | ToRelay): Promise<void> {
    if (!this.#isReady) return
    const failure = await new Promise<ThreadResult | undefined>(resolve => {
      this.#steps.set(step, resolve)
      this.tell(message)
    })
    if (failure !== undefined) unwrapResult(failure)
  }

  /** The socket stays open here. */
  hand(connection: number, socket: Socket): void {
    if (this.#child?.connected === true)
      this.#child.send({ kind: 'connection', connection }, socket, { keepOpen: true }, () => {})
  }

  /** Finishes what it has and exits. It is not restarted. */
  leave(graceMs: number): Promise<void> {
    this.#isLeaving = true
    return this.#end({ kind: 'left', graceMs }, graceMs)
  }

  /** Resolves when it has exited. */
  stop(graceMs: number): Promise<void> {
    return this.#end({ kind: 'stop' }, graceMs)
  }

  async #end(message: ToRelay, graceMs: number): Promise<void> {
    this.#stopping = true
    clearTimeout(this.#timer)
    const child = this.#child
    if (child?.pid === undefined || child.exitCode !== null || child.signalCode !== null) return
    const exited = new Promise(resolve => child.once('exit', resolve))
    // Before it is ready it has nothing to finish, and may not read messages.
    if (this.#isReady) this.tell(message)
    else child.kill('SIGKILL')
    const timer = setTimeout(() => child.kill('SIGKILL'), graceMs + KILL_MS)
    await exited
    clearTimeout(timer)
  }

  #run(ready: () => void, failed: (error: unknown) => void): void {
    const { name, program, log, spawned, received, pongReceived, exited } = this.#spec
    const startMs = performance.now()
    let failure: ThreadResult | undefined
    let over = false
    let wasReady = false
    const onExit = (how: string) => {
      if (over) return
      over = true
      this.#isReady = false
      for (const done of this.#steps.values()) done()
      this.#steps.clear()
      this.#pongs = this.#pings
      this.#missed = 0
      exited?.()
      if (!wasReady) failed(startError(failure, name, how))
      if (this.#stopping || !this.#wasReady) return
      if (performance.now() - startMs > STABLE_MS) this.#restarts = 0
      this.#restart(how)
    }
    let child: ChildProcess
    try {
      child = fork(PROGRAMS[program], {
        // Its own process group: Ctrl-C in the terminal goes to the supervisor alone, which stops the others
        // in order.
        detached: true,
        stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
      })
    } catch (error) {
      return onExit(notStarted(error))
    }
    this.#child = child
    child.on('error', error =>
      child.pid === undefined
        ? onExit(notStarted(error))
        : log.error({ err: error, process: name }, 'error on the channel to a process'),
    )
    // If the process could not be created there are no pipes and no channel.
    if (child.pid === undefined) return
    passLines(child)
    child.on('message', (message: FromChild) => {
      if (message.kind === 'failed') failure = message.failure
      if (message.kind === 'pong') {
        this.#pongs = message.ping
        this.#missed = 0
        pongReceived?.(message.ping)
      }
      if (message.kind === 'ready') {
        this.#isReady = this.#wasReady = wasReady = true
        this.#isLeaving = false
        log.info({ process: name, pid: child.pid }, 'process is ready')
        ready()
        this.#spec.ready?.()
      }
      if (message.kind === 'leaving') {
        this.#isLeaving = true
        this.tell({ kind: 'left', graceMs: this.#spec.leaveMs ?? 0 })
      }
      if (message.kind === 'done') {
        const done = this.#steps.get(message.step)
        this.#steps.delete(message.step)
        done?.(message.failure)
      }
      received?.(message)
    })
    child.once('exit', (code, signal) => onExit(signal ?? `exit code ${code}`))
    spawned(child)
  }

  #restart(how: string): void {
    const pauseMs = RESTART_DELAYS_MS[Math.min(this.#restarts++, RESTART_DELAYS_MS.length - 1)]!
    this.#spec.log.error({ process: this.name, how, pauseMs }, 'process exited, restarting it')
    this.#timer = setTimeout(() => {
      this.#run(
        () => {},
        error => {
          if (!this.#stopping)
            this.#spec.log.error({ err: error, process: this.name }, 'process failed to start')
        },
      )
    }, pauseMs)
  }
}

function notStarted(error: unknown): string {
  return `it could not be started: ${error instanceof Error ? error.message : String(error)}`
}

function startError(failure: ThreadResult | undefined, name: string, how: string): unknown {
  try {
    if (failure !== undefined) unwrapResult(failure)
  } catch (error) {
    return error
  }
  return new Error(`${name} exited (${how}) before it was ready`)
}

/** Passes its log on in whole lines, so that lines of two processes do not mix. */
function passLines(child: ChildProcess): void {
  let rest = ''
  child.stderr!.setEncoding('utf8').on('data', (text: string) => {
    const end = text.lastIndexOf('\n') + 1
    if (end === 0) return void (rest += text)
    logOutput().write(rest + text.slice(0, end))
    rest = text.slice(end)
  })
  child.stderr!.once('end', () => rest !== '' && logOutput().write(`${rest}\n`))
  child.stderr!.once('close', () => rest === '' || logOutput().write(`${rest}\n`))
}
