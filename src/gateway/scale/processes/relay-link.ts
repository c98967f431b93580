/**
 * A relay's connection to the owner. While there is no owner, requests to it wait up to a timeout; streams
 * continue. The relay first declares its state to a new owner, which is the number of admitted requests and
 * each ticket.
 */
import { connect, type Socket } from 'node:net'
import type { Role, WorkerSpec } from '../../../cluster/worker.ts'
import type { SeenOfWorker } from '../../routing/placement.ts'
import type { HandoffExperts } from '../../routing/read-experts.ts'
import { Refusal } from '../../http/refusal.ts'
import type { Frame, FrameWriter } from './frames.ts'
import { GatheredSocket } from './gathered-socket.ts'
import {
  ASK,
  ENDS,
  readMaybe,
  roleByte,
  roleOf,
  TELL,
  type TicketEnd,
  writeHandoff,
  writeMaybe,
} from './messages.ts'

export interface LinkOptions {
  readonly path: string
  /** Of this process. */
  readonly relay: number
  /** How long requests to the owner wait for one. */
  readonly timeoutMs?: number
  /** `left`: how many requests may be retried elsewhere. */
  lost(worker: string, left: number): void
  room(room: number): void
  logLevel(level: string): void
  forgotten(worker: WorkerSpec): void
  /** Connected to a new owner, which knows only what the relay declares. */
  connected?(): void
  /** The report that the owner asks for, as a JSON value. */
  report(what: 'metrics' | 'request', about: string): Promise<unknown>
}

/** What a new owner must know about a ticket. */
export interface LiveTicket {
  readonly role: Role
  readonly worker: WorkerSpec
  readonly tokens: number
  /** Absent if no policy counts it. */
  readonly placed?: { readonly request: string; readonly handoff: HandoffExperts | undefined }
}

type Fill = (to: FrameWriter) => unknown

interface PendingCall {
  readonly kind: number
  readonly fill: Fill
  responded(frame: Frame): void
  failed(refusal: Refusal): void
}

/** A new owner is ready within about a second, and within three on a busy machine. */
const OWNER_TIMEOUT_MS = 5_000
const RECONNECT_MS = 10

export class RelayLink {
  /** Admitted requests that have not ended. */
  running = 0
  readonly workers = new Map<number, WorkerSpec>()
  readonly #options: LinkOptions
  #path: string
  readonly #calls = new Map<number, PendingCall>()
  readonly #tickets = new Map<number, LiveTicket & { readonly takenMs: number }>()
  #socket: GatheredSocket | undefined
  #stream: Socket | undefined
  #moved = () => {}
  #next = 1
  #closed = false
  /** There has been no owner for longer than the timeout. */
  #timedOut = false
  #ownerTimer: NodeJS.Timeout | undefined
  #reconnectTimer: NodeJS.Timeout | undefined

  constructor(options: LinkOptions) {
    this.#options = options
    this.#path = options.path
  }

  /** Resolves at the first connection. */
  open(): Promise<void> {
    return new Promise(resolve => this.#connect(resolve))
  }

  /** Continues with another owner. Resolves when it has been told of everything. */
  moveTo(path: string): Promise<void> {
    this.#path = path
    return new Promise(resolve => {
      this.#moved = resolve
      this.#stream?.destroy()
    })
  }

  /**
   * Rejects with a Refusal if there is no owner in time. `read` runs on the response, before the next frame
   * is read.
   */
  ask<T>(
    kind: number,
    fill: Fill,
    read: (frame: Frame, id: number) => T,
    cancel?: { onCancel(call: () => void): void },
  ): Promise<T> {
    if (this.#timedOut || this.#closed) return Promise.reject(ownerAway())
    const id = this.#nextId()
    return new Promise((resolve, reject) => {
      const responded = (frame: Frame) => {
        try {
          resolve(read(frame, id))
        } catch (error) {
          reject(error)
        }
      }
      this.#calls.set(id, { kind, fill, responded, failed: reject })
      cancel?.onCancel(() => {
        if (this.#calls.delete(id)) this.tell(ASK.cancel, id)
      })
      if (this.#socket !== undefined) this.#write(kind, id, fill)
    })
  }

  /**
   * Sends without a response. Lost if there is no owner: a new one learns it from the declaration, or does
   * not need it.
   */
  tell(kind: number, id = 0, fill: Fill = () => {}): void {
    if (this.#socket !== undefined) this.#write(kind, id, fill)
  }

  /** The owner counts the ticket under this number. */
  hold(id: number, ticket: LiveTicket, takenMs = performance.now()): void {
    this.#tickets.set(id, { ...ticket, takenMs })
  }

  /** Holds a ticket that this process has issued itself. Returns its number. */
  bring(ticket: LiveTicket, takenMs: number): number {
    const id = this.#nextId()
    this.hold(id, ticket, takenMs)
    return id
  }

  /** Later calls do nothing. */
  release(id: number, how: TicketEnd, seen: SeenOfWorker = {}): void {
    if (this.#tickets.delete(id)) this.#tellEnded(id, how, seen)
  }

  get tickets(): number {
    return this.#tickets.size
  }

  close(): void {
    this.#closed = true
    this.#failCalls()
    clearTimeout(this.#ownerTimer)
    clearTimeout(this.#reconnectTimer)
    this.#socket?.close()
  }

  /** An unused number: after a wrap-around, tickets may be as old as half an hour. */
  #nextId(): number {
    do this.#next = this.#next === 0xffff_ffff ? 1 : this.#next + 1
    while (this.#calls.has(this.#next) || this.#tickets.has(this.#next))
    return this.#next
  }

  #connect(connected: () => void): void {
    const socket = connect(this.#path)
    this.#stream = socket
    let wasConnected = false
    socket.once('connect', () => {
      wasConnected = true
      clearTimeout(this.#ownerTimer)
      this.#ownerTimer = undefined
      this.#timedOut = false
      this.#declare(socket)
      connected()
      this.#moved()
    })
    socket.on('error', () => {}) // 'close' follows
    socket.once('close', () => {
      this.#socket = undefined
      if (this.#closed) return
      if (wasConnected) this.workers.clear() // the next owner assigns new numbers
      this.#ownerTimer ??= setTimeout(() => this.#failCalls(), this.#options.timeoutMs ?? OWNER_TIMEOUT_MS)
      this.#reconnectTimer = setTimeout(
        () => this.#connect(wasConnected ? () => {} : connected),
        wasConnected ? 0 : RECONNECT_MS,
      )
    })
  }

  #declare(socket: Socket): void {
    this.#socket = new GatheredSocket(socket, frame => this.#take(frame))
    this.#write(ASK.hello, this.#options.relay)
    const nowMs = performance.now()
    for (const [id, { role, placed, worker, tokens, takenMs }] of this.#tickets) {
      this.#write(ASK.adopt, id, to => {
        to.byte(roleByte(role))
          .byte(placed === undefined ? 0 : 1)
          .text(worker.id)
          .number(tokens)
          .number(nowMs - takenMs)
          .text(placed?.request ?? '')
        writeHandoff(to, placed?.handoff)
      })
    }
    this.#options.connected?.()
    this.#write(ASK.running, 0, to => to.number(this.running))
    this.#write(ASK.declared, 0)
    for (const [id, { kind, fill }] of this.#calls) this.#write(kind, id, fill)
    this.#socket.flush()
  }

  #failCalls(): void {
    this.#timedOut = true
    const waiting = [...this.#calls.values()]
    this.#calls.clear()
    for (const { failed } of waiting) failed(ownerAway())
  }

  #write(kind: number, id: number, fill: Fill = () => {}): void {
    const to = this.#socket!.writer.begin(kind, id)
    fill(to)
    to.end()
  }

  #take(frame: Frame): void {
    const { kind, id } = frame
    const { lost, room, logLevel, forgotten } = this.#options
    if (kind >= TELL.admitted && kind <= TELL.none) return this.#responded(frame)
    if (kind === TELL.worker) return void this.workers.set(id, readWorker(frame))
    if (kind === TELL.room) return room(frame.byte())
    if (kind === TELL.lost) return lost(frame.text(), frame.number())
    if (kind === TELL.logLevel) return logLevel(frame.text())
    if (kind === TELL.metrics || kind === TELL.request)
      return this.#report(id, kind === TELL.metrics ? 'metrics' : 'request', frame.text())
    if (kind !== TELL.forgotten) throw new RangeError(`unknown frame kind ${kind}`)
    const worker = this.workers.get(id)
    this.workers.delete(id)
    if (worker !== undefined) forgotten(worker)
  }

  #responded(frame: Frame): void {
    const { kind, id } = frame
    const call = this.#calls.get(id)
    this.#calls.delete(id)
    if (call !== undefined) call.responded(frame)
    // Cancelled while the response was in transit: give back what was granted.
    else if (kind === TELL.admitted) this.tell(ASK.leave)
    else if (kind === TELL.dispatch || kind === TELL.place) this.#tellEnded(id, 'ignored')
  }

  #tellEnded(id: number, how: TicketEnd, seen: SeenOfWorker = {}): void {
    const { tokens = 0, tokenUs, computedTokens, firstTokenMs } = seen
    this.tell(ASK.ended, id, to => {
      to.byte(ENDS.indexOf(how)).number(tokens)
      for (const value of [tokenUs, computedTokens, firstTokenMs]) writeMaybe(to, value)
    })
  }

  #report(id: number, what: 'metrics' | 'request', about: string): void {
    void this.#options
      .report(what, about)
      .then(report => this.tell(ASK.report, id, to => to.text(JSON.stringify(report))))
  }
}

function readWorker(frame: Frame): WorkerSpec {
  return { role: roleOf(frame.byte()), id: frame.text(), url: frame.text(), dpRank: readMaybe(frame) }
}

function ownerAway(): Refusal {
  return new Refusal('ELDR_OWNER_AWAY', { retryAfterSeconds: 1 })
}
