/** One process of the gateway, started anew when it ends by itself. */
import { type ChildProcess, fork } from 'node:child_process'
import type { Socket } from 'node:net'
import type { Log } from '../../observe/log/log.ts'
import { logOutput } from '../../observe/log/log-output.ts'
import { type ThreadResult, unwrapResult } from '../../routing/thread-result.ts'
import type { FromChild, ToOwner, ToRelay } from './supervisor-messages.ts'

export interface MemberSpec {
  readonly name: string
  /** Its file, without the ending. */
  readonly program: 'owner' | 'relay'
  readonly log: Log
  /** Sends the first message. */
  begin(child: ChildProcess): void
  ready?(): void
  heard?(message: FromChild): void
  /** It has got all that it was sent before this ping. */
  answered?(ping: number): void
  died?(): void
}

/** The first time at once; doubled each time that it does not hold. */
const PAUSES_MS = [0, 500, 1_000, 2_000, 4_000, 8_000] as const
/** One that ran so long was well. */
const HELD_MS = 10_000
/** Beyond what it may take to end. */
const KILL_MS = 5_000

/** How often each is asked whether it is there. */
export const LOOK_MS = 500
/**
 * One that has not answered for so many looks hangs: 5 seconds. Whatever takes long runs in threads of its own, and what is left holds up
 * an event loop for a fraction of a second. Looks are counted and not time: when the whole machine sleeps, or this process does, nobody is to blame.
 */
const MOST_SILENT = 10
/** Until it is ready: a large artifact is read and proven before there is anybody to be held up by it. */
const MOST_SILENT_BEFORE = 120
/** So many looks without an answer, and what is new is rather for others. */
const SLOW = 2

export class Member {
  readonly name: string
  readonly #spec: MemberSpec
  #child: ChildProcess | undefined
  #isReady = false
  #isLeaving = false
  /** It has been ready once: from then on it is started anew. */
  #began = false
  #stopping = false
  #tries = 0
  #pings = 0
  #pongs = 0
  #silent = 0
  #timer: NodeJS.Timeout | undefined

  constructor(spec: MemberSpec) {
    this.name = spec.name
    this.#spec = spec
  }

  get isReady(): boolean {
    return this.#isReady
  }

  /** It is told to end by somebody, or ends by itself: what is new is for others, where there are others. */
  get isLeaving(): boolean {
    return this.#isLeaving
  }

  /** It has been asked for a while, and has not answered. */
  get isSlow(): boolean {
    return this.#silent >= SLOW
  }

  /** The last that it was asked. */
  get pings(): number {
    return this.#pings
  }

  /** Every LOOK_MS. Whoever hangs is killed, and so started anew. */
  look(): void {
    const child = this.#child
    if (child?.connected !== true) return
    if (this.#pongs !== this.#pings) this.#silent++
    if (this.#silent < (this.#isReady ? MOST_SILENT : MOST_SILENT_BEFORE))
      return this.tell({ kind: 'ping', ping: ++this.#pings })
    const silentMs = this.#silent * LOOK_MS
    this.#spec.log.error(
      { process: this.name, pid: child.pid, silentMs },
      'a process does not answer: it is killed',
    )
    this.#silent = 0
    child.kill('SIGKILL')
  }

  /** There and then: nobody is left to look after it. */
  kill(): void {
    this.#child?.kill('SIGKILL')
  }

  /** Rejects with what is wrong when it cannot begin: the first time is not tried again. */
  start(): Promise<void> {
    return new Promise((resolve, reject) => this.#run(resolve, reject))
  }

  tell(message: ToOwner | ToRelay): void {
    if (this.#child?.connected === true) this.#child.send(message, () => {}) // it may just have ended
  }

  /** The socket stays open here. */
  hand(connection: number, socket: Socket): void {
    if (this.#child?.connected === true)
      this.#child.send({ kind: 'connection', connection }, socket, { keepOpen: true }, () => {})
  }

  /** Resolves when it has ended. */
  async stop(graceMs: number): Promise<void> {
    this.#stopping = true
    clearTimeout(this.#timer)
    const child = this.#child
    if (child?.pid === undefined || child.exitCode !== null || child.signalCode !== null) return
    const exited = new Promise(resolve => child.once('exit', resolve))
    // One that has not begun has nothing to end, and may not hear.
    if (this.#isReady) this.tell({ kind: 'stop' })
    else child.kill('SIGKILL')
    const timer = setTimeout(() => child.kill('SIGKILL'), graceMs + KILL_MS)
    await exited
    clearTimeout(timer)
  }

  #run(ready: () => void, failed: (error: unknown) => void): void {
    const { name, program, log, begin, heard, answered, died } = this.#spec
    const sinceMs = performance.now()
    let failure: ThreadResult | undefined
    let over = false
    let wasReady = false
    const ended = (how: string) => {
      if (over) return
      over = true
      this.#isReady = false
      this.#pongs = this.#pings
      this.#silent = 0
      died?.()
      if (!wasReady) failed(startError(failure, name, how))
      if (this.#stopping || !this.#began) return
      if (performance.now() - sinceMs > HELD_MS) this.#tries = 0
      this.#again(how)
    }
    let child: ChildProcess
    try {
      child = fork(new URL(`../../app/${program}.js`, import.meta.url), {
        // A group of its own: Ctrl-C in the terminal is for the supervisor, which then stops all in order.
        detached: true,
        stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
      })
    } catch (error) {
      return ended(notStarted(error))
    }
    this.#child = child
    child.on('error', error =>
      child.pid === undefined
        ? ended(notStarted(error))
        : log.error({ err: error, process: name }, 'the channel to a process'),
    )
    // Of a process that there is no room for: neither pipes nor a channel.
    if (child.pid === undefined) return
    passLines(child)
    child.on('message', (message: FromChild) => {
      if (message.kind === 'failed') failure = message.failure
      if (message.kind === 'pong') {
        this.#pongs = message.ping
        this.#silent = 0
        answered?.(message.ping)
      }
      if (message.kind === 'ready') {
        this.#isReady = this.#began = wasReady = true
        this.#isLeaving = false
        log.info({ process: name, pid: child.pid }, 'process is ready')
        ready()
        this.#spec.ready?.()
      }
      if (message.kind === 'leaving') {
        this.#isLeaving = true
        this.tell({ kind: 'left' })
      }
      heard?.(message)
    })
    child.once('exit', (code, signal) => ended(signal ?? `exit code ${code}`))
    begin(child)
  }

  #again(how: string): void {
    const pauseMs = PAUSES_MS[Math.min(this.#tries++, PAUSES_MS.length - 1)]!
    this.#spec.log.error({ process: this.name, how, pauseMs }, 'a process has ended: it is started anew')
    this.#timer = setTimeout(() => {
      this.#run(
        () => {},
        error => {
          if (!this.#stopping)
            this.#spec.log.error({ err: error, process: this.name }, 'a process cannot begin')
        },
      )
    }, pauseMs)
  }
}

function notStarted(error: unknown): string {
  return `it cannot be started: ${error instanceof Error ? error.message : String(error)}`
}

function startError(failure: ThreadResult | undefined, name: string, how: string): unknown {
  try {
    if (failure !== undefined) unwrapResult(failure)
  } catch (error) {
    return error
  }
  return new Error(`${name} ended (${how}) before it was ready`)
}

/** What it logs, by whole lines: lines of two processes must not run into each other. */
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
