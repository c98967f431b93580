/**
 * A relay's way to the owner. While there is none, questions wait, for so long; streams go on and do not notice. A new owner is told what
 * the relay has before it is asked anything: the requests that were let in, and each ticket.
 */
import { connect, type Socket } from 'node:net'
import type { Role, WorkerSpec } from '../../../cluster/worker.ts'
import { Refusal } from '../../http/refusal.ts'
import type { Frame, FrameWriter } from './frames.ts'
import { GatheredSocket } from './gathered-socket.ts'
import {
  ASK,
  ENDS,
  type RawHandoff,
  readMaybe,
  roleByte,
  roleOf,
  TELL,
  type TicketEnd,
  writeHandoff,
} from './messages.ts'

export interface LinkOptions {
  readonly path: string
  readonly relay: number
  /** How long questions wait for an owner. */
  readonly patienceMs?: number
  /** `left`: how many requests may be tried elsewhere. */
  lost(worker: string, left: number): void
  room(room: number): void
  logLevel(level: string): void
  forgotten(worker: WorkerSpec): void
  /** To another owner, who knows nothing but what it is told. */
  connected?(): void
  /** What the owner wants to know, as JSON can have it. */
  report(what: 'metrics' | 'request', about: string): Promise<unknown>
}

/** What a new owner must know of a ticket. */
export interface LiveTicket {
  readonly role: Role
  readonly worker: WorkerSpec
  readonly tokens: number
  /** Absent where no policy counts it. */
  readonly placed?: { readonly request: string; readonly handoff: RawHandoff | undefined }
}

type Fill = (to: FrameWriter) => unknown

interface Question {
  readonly kind: number
  readonly fill: Fill
  /** With the answer's frame. */
  answered(frame: Frame): void
  failed(refusal: Refusal): void
}

/** A new one is there within a second or so, and within three on a machine that has much else to do. */
const PATIENCE_MS = 5_000
const AGAIN_MS = 10

export class RelayLink {
  /** Requests that were let in and have not left. */
  running = 0
  readonly workers = new Map<number, WorkerSpec>()
  readonly #options: LinkOptions
  readonly #questions = new Map<number, Question>()
  readonly #tickets = new Map<number, LiveTicket & { readonly takenMs: number }>()
  #socket: GatheredSocket | undefined
  #next = 1
  #closed = false
  /** Nobody is there to answer, and has not been for too long. */
  #givenUp = false
  #patience: NodeJS.Timeout | undefined
  #again: NodeJS.Timeout | undefined

  constructor(options: LinkOptions) {
    this.#options = options
  }

  /** Resolves when an owner is there for the first time. */
  open(): Promise<void> {
    return new Promise(resolve => this.#connect(resolve))
  }

  /** Resolves with the answer's frame; rejects with a Refusal when no owner comes. `read` runs when the answer comes, before others do. */
  ask<T>(
    kind: number,
    fill: Fill,
    read: (frame: Frame, id: number) => T,
    cancel?: { onCancel(call: () => void): void },
  ): Promise<T> {
    if (this.#givenUp || this.#closed) return Promise.reject(away())
    const id = this.#number()
    return new Promise((resolve, reject) => {
      const answered = (frame: Frame) => {
        try {
          resolve(read(frame, id))
        } catch (error) {
          reject(error)
        }
      }
      this.#questions.set(id, { kind, fill, answered, failed: reject })
      cancel?.onCancel(() => {
        if (this.#questions.delete(id)) this.tell(ASK.cancel, id)
      })
      if (this.#socket !== undefined) this.#write(kind, id, fill)
    })
  }

  /** Without an answer. Lost where there is no owner: what it changes a new owner learns otherwise, or need not know. */
  tell(kind: number, id = 0, fill: Fill = () => {}): void {
    if (this.#socket !== undefined) this.#write(kind, id, fill)
  }

  /** The owner has counted it under this number. */
  hold(id: number, ticket: LiveTicket): void {
    this.#tickets.set(id, { ...ticket, takenMs: performance.now() })
  }

  /** Once; again does nothing. */
  release(id: number, how: TicketEnd): void {
    if (this.#tickets.delete(id)) this.tell(ASK.ended, id, to => to.byte(ENDS.indexOf(how)))
  }

  get tickets(): number {
    return this.#tickets.size
  }

  close(): void {
    this.#closed = true
    clearTimeout(this.#patience)
    clearTimeout(this.#again)
    this.#socket?.close()
  }

  /** Of a question: not one that is in use, since tickets may be as old as half an hour. */
  #number(): number {
    do this.#next = this.#next === 0xffff_ffff ? 1 : this.#next + 1
    while (this.#questions.has(this.#next) || this.#tickets.has(this.#next))
    return this.#next
  }

  #connect(connected: () => void): void {
    const socket = connect(this.#options.path)
    let was = false
    socket.once('connect', () => {
      was = true
      clearTimeout(this.#patience)
      this.#patience = undefined
      this.#givenUp = false
      this.#declare(socket)
      connected()
    })
    socket.on('error', () => {}) // 'close' follows
    socket.once('close', () => {
      this.#socket = undefined
      if (this.#closed) return
      if (was) this.workers.clear() // the next owner has numbers of its own
      this.#patience ??= setTimeout(() => this.#giveUp(), this.#options.patienceMs ?? PATIENCE_MS)
      this.#again = setTimeout(() => this.#connect(was ? () => {} : connected), was ? 0 : AGAIN_MS)
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
    for (const [id, { kind, fill }] of this.#questions) this.#write(kind, id, fill)
    this.#socket.flush()
  }

  #giveUp(): void {
    this.#givenUp = true
    const waiting = [...this.#questions.values()]
    this.#questions.clear()
    for (const { failed } of waiting) failed(away())
  }

  #write(kind: number, id: number, fill: Fill = () => {}): void {
    const to = this.#socket!.writer.begin(kind, id)
    fill(to)
    to.end()
  }

  #take(frame: Frame): void {
    const { kind, id } = frame
    const { lost, room, logLevel, forgotten } = this.#options
    if (kind >= TELL.admitted && kind <= TELL.none) return this.#answered(frame)
    if (kind === TELL.worker) return void this.workers.set(id, readWorker(frame))
    if (kind === TELL.room) return room(frame.byte())
    if (kind === TELL.lost) return lost(frame.text(), frame.number())
    if (kind === TELL.logLevel) return logLevel(frame.text())
    if (kind === TELL.metrics || kind === TELL.request)
      return this.#report(id, kind === TELL.metrics ? 'metrics' : 'request', frame.text())
    if (kind !== TELL.forgotten) throw new RangeError(`a frame of kind ${kind}`)
    const worker = this.workers.get(id)
    this.workers.delete(id)
    if (worker !== undefined) forgotten(worker)
  }

  #answered(frame: Frame): void {
    const { kind, id } = frame
    const question = this.#questions.get(id)
    this.#questions.delete(id)
    if (question !== undefined) question.answered(frame)
    // It was called off while the answer was on its way.
    else if (kind === TELL.admitted) this.tell(ASK.leave)
    else if (kind === TELL.dispatch || kind === TELL.place)
      this.tell(ASK.ended, id, to => to.byte(ENDS.indexOf('ignored')))
  }

  #report(id: number, what: 'metrics' | 'request', about: string): void {
    void this.#options
      .report(what, about)
      .then(report => this.tell(ASK.report, id, to => to.text(JSON.stringify(report))))
  }
}

function readWorker(frame: Frame): WorkerSpec {
  const spec = { role: roleOf(frame.byte()), id: frame.text(), url: frame.text() }
  const dpRank = readMaybe(frame)
  return { ...spec, ...(dpRank !== undefined && { dpRank }) }
}

function away(): Refusal {
  return new Refusal('ELDR_OWNER_AWAY', { retryAfterSeconds: 1 })
}
