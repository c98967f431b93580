/** The owner's session with one relay: its requests and tickets, which end when the relay disconnects. */
import type { Socket } from 'node:net'
import type { RegistryEventKind } from '../../../cluster/registry.ts'
import type { WorkerSpec } from '../../../cluster/worker.ts'
import { Refusal } from '../../http/refusal.ts'
import { NEVER } from '../../routing/lost-workers.ts'
import type { DecodePlacement, Placement } from '../../routing/placement.ts'
import { UpstreamFailure } from '../../upstream/upstreams.ts'
import type { Frame, FrameWriter } from './frames.ts'
import { GatheredSocket } from './gathered-socket.ts'
import { RelayTickets } from './relay-tickets.ts'
import {
  ASK,
  ENDS,
  PACES,
  readHandoff,
  readMaybe,
  readStream,
  readTurn,
  roleByte,
  roleOf,
  ROOM,
  TELL,
  writeMaybe,
} from './messages.ts'
import type { OwnerServer, OwnerParts } from './owner-server.ts'

export class RelaySession {
  /** Known after `hello`. */
  number: number | undefined
  readonly #socket: GatheredSocket
  readonly #owner: OwnerServer
  readonly #parts: OwnerParts
  readonly #tickets: RelayTickets
  /** Requests that wait for admission, with their cancel functions. */
  readonly #waiting = new Map<number, () => void>()
  readonly #workers = new Map<WorkerSpec, number>()
  #nextWorker = 1
  #admitted = 0
  /** Last value sent; undefined at first, because the relay may have another value from the owner before. */
  #room: number | undefined
  #disconnected = false
  readonly #reports = new Map<number, (report: unknown) => void>()
  #nextReport = 1

  constructor(socket: Socket, owner: OwnerServer) {
    this.#owner = owner
    this.#parts = owner.parts
    this.#tickets = new RelayTickets(owner.parts)
    this.#socket = new GatheredSocket(socket, frame => this.#take(frame))
    socket.on('error', (error: NodeJS.ErrnoException) => {
      const isGone = error.code === 'EPIPE' || error.code === 'ECONNRESET'
      const level = isGone ? 'debug' : 'warn'
      this.#parts.log[level]({ err: error, relay: this.number }, 'error on the connection of a relay')
    })
    this.send(TELL.logLevel, 0, to => to.text(this.#parts.logLevel()))
    this.tellRoom(owner.room())
    for (const { spec } of this.#parts.registry.views(performance.now())) this.#numberOf(spec)
  }

  send(kind: number, id: number, fill: (to: FrameWriter) => unknown = () => {}): void {
    const to = this.#socket.writer.begin(kind, id)
    fill(to)
    to.end()
  }

  /** Sends `room` if it has changed. */
  tellRoom(room: number): void {
    if (room === this.#room) return
    this.#room = room
    this.send(TELL.room, 0, to => to.byte(room))
  }

  /** Asks for a report. Undefined if the relay disconnects or does not respond in time. */
  ask(kind: number, about: string, timeoutMs: number): Promise<unknown> {
    const id = this.#nextReport++
    return new Promise(resolve => {
      const settle = (report: unknown) => {
        clearTimeout(timer)
        this.#reports.delete(id)
        resolve(report)
      }
      const timer = setTimeout(() => settle(undefined), timeoutMs)
      this.#reports.set(id, settle)
      this.send(kind, id, to => to.text(about))
    })
  }

  isOn(worker: string): boolean {
    return this.#tickets.isOn(worker)
  }

  workerChanged(kind: RegistryEventKind, worker: WorkerSpec): void {
    if (kind === 'forgotten') {
      const number = this.#workers.get(worker)
      this.#workers.delete(worker)
      if (number !== undefined) this.send(TELL.forgotten, number)
    } else if (kind === 'added') {
      this.#numberOf(worker)
      this.#tickets.workerAdded(worker.id)
    }
  }

  /** Ends everything that the relay has. */
  disconnected(): void {
    this.#disconnected = true
    for (const settle of this.#reports.values()) settle(undefined)
    for (const cancel of this.#waiting.values()) cancel()
    this.#tickets.endAll()
    for (; this.#admitted > 0; this.#admitted--) this.#parts.admission.leave()
  }

  close(): void {
    this.#socket.close()
  }

  #take(frame: Frame): void {
    const { kind, id } = frame
    const { placement } = this.#parts
    if (kind === ASK.ended)
      return this.#tickets.end(id, ENDS[frame.byte()] ?? 'ignored', {
        tokens: frame.number(),
        tokenUs: readMaybe(frame),
        computedTokens: readMaybe(frame),
        firstTokenMs: readMaybe(frame),
      })
    if (kind === ASK.pace)
      return this.#parts.pace[PACES[frame.byte()] ?? 'onWorker'](frame.text(), frame.number())
    if (kind === ASK.streamEnded) return this.#parts.streamEnded?.(readStream(frame))
    if (kind === ASK.requestCame) return placement.requestCame()
    if (kind === ASK.leave) return this.#leave()
    if (kind === ASK.passiveFailure) return this.#parts.health.passiveFailure(frame.text())
    if (kind === ASK.sawEngine) return this.#parts.restarts.sawEngineId(frame.text(), frame.text())
    if (kind === ASK.report) return this.#reported(id, JSON.parse(frame.text()))
    if (kind === ASK.hello) return void (this.number = id)
    if (kind === ASK.adopt) return this.#adopt(frame)
    if (kind === ASK.running) return this.#adoptRunning(frame.number())
    if (kind === ASK.declared)
      return this.number === undefined ? undefined : this.#owner.declared(this.number)
    return this.#owner.whenOpen(() => {
      if (!this.#disconnected) this.#respond(frame)
    })
  }

  /** Number 0 is the final report of a relay that exits. */
  #reported(id: number, report: unknown): void {
    if (id > 0) this.#reports.get(id)?.(report)
    else if (this.number !== undefined) this.#owner.finalReport(this.number, report)
  }

  #respond(frame: Frame): void {
    const { kind, id } = frame
    const { placement } = this.#parts
    if (kind === ASK.enter) return this.#enter(id)
    if (kind === ASK.cancel) return this.#waiting.get(id)?.()
    if (kind === ASK.any) return this.#yes(id, placement.any(roleOf(frame.byte()), frame.texts()))
    if (kind === ASK.mayRetry) return this.#yes(id, placement.mayRetry(roleOf(frame.byte()), frame.texts()))
    if (kind === ASK.mayResume) return this.#yes(id, placement.mayResume(frame.texts()))
    if (kind === ASK.release) return this.#dispatched(id, placement.toRelease(frame.texts()))
    if (kind === ASK.prefill) {
      const key = frame.number()
      return this.#dispatched(
        id,
        placement.toPrefill(Number.isNaN(key) ? undefined : key, frame.number(), frame.texts()),
      )
    }
    if (kind === ASK.holder) {
      const [request, exclude] = [frame.text(), frame.texts()]
      return this.#placed(id, placement.toHolder(request, readTurn(frame)!, exclude))
    }
    if (kind !== ASK.decode) throw new RangeError(`unknown frame kind ${kind}`)
    const [request, tokens, exclude] = [frame.text(), frame.number(), frame.texts()]
    return this.#placed(id, placement.toDecode(request, readHandoff(frame), tokens, exclude, readTurn(frame)))
  }

  #enter(id: number): void {
    const { admission } = this.#parts
    if (admission.hasRoom) {
      void admission.enter(NEVER)
      this.#admit(id)
      return this.#owner.roomChanged()
    }
    let cancelled = false
    const stop = {
      onStop: (listener: (reason: UpstreamFailure) => void) => {
        this.#waiting.set(id, () => {
          cancelled = true
          listener(new UpstreamFailure('aborted', 'the request was cancelled'))
        })
        return () => void this.#waiting.delete(id)
      },
    }
    const entered = () => (this.#disconnected ? admission.leave() : this.#admit(id))
    const refused = (error: unknown) => {
      this.#waiting.delete(id)
      if (cancelled || this.#disconnected) return
      const { code, retryAfterSeconds = 1 } = error instanceof Refusal ? error : new Refusal('ELDR_INTERNAL')
      this.send(TELL.refused, id, to => to.text(code).number(retryAfterSeconds))
    }
    void admission
      .enter(stop)
      .then(entered, refused)
      .then(() => this.#owner.roomChanged())
    this.#owner.roomChanged()
  }

  #admit(id: number): void {
    const { placement } = this.#parts
    this.#admitted++
    const workers =
      (placement.any('prefill', NO_EXCLUSIONS) ? ROOM.prefill : 0) |
      (placement.any('decode', NO_EXCLUSIONS) ? ROOM.decode : 0)
    this.send(TELL.admitted, id, to => to.byte(workers))
  }

  #leave(): void {
    if (this.#admitted === 0) return
    this.#admitted--
    this.#parts.admission.leave()
    this.#owner.roomChanged()
  }

  #adoptRunning(count: number): void {
    this.#admitted += count
    this.#parts.admission.running += count
    this.#owner.roomChanged()
  }

  #adopt(frame: Frame): void {
    const [role, placed, worker, tokens, ageMs, request] = [
      roleOf(frame.byte()),
      frame.byte() === 1,
      frame.text(),
      frame.number(),
      frame.number(),
      frame.text(),
    ]
    this.#tickets.adopt(frame.id, {
      role,
      placed,
      worker,
      tokens,
      takenMs: performance.now() - ageMs,
      request,
      handoff: readHandoff(frame),
    })
  }

  #yes(id: number, is: boolean): void {
    this.send(TELL.yes, id, to => to.byte(is ? 1 : 0))
  }

  #dispatched(id: number, placement: Placement | undefined): void {
    if (placement === undefined) return this.send(TELL.none, id)
    this.#tickets.hold(id, placement)
    const worker = this.#numberOf(placement.worker)
    return this.send(TELL.dispatch, id, to => to.number(worker).number(placement.index))
  }

  #placed(id: number, placement: DecodePlacement | undefined): void {
    if (placement === undefined) return this.send(TELL.none, id)
    const { index, decision, policy, similarity, covered, conversation } = placement
    this.#tickets.hold(id, placement)
    const worker = this.#numberOf(placement.worker)
    return this.send(TELL.place, id, to => {
      to.number(worker).number(index).text(decision.reason).text(policy)
      for (const value of [decision.band, similarity, covered]) writeMaybe(to, value)
      to.text(conversation ?? '')
    })
  }

  /** Sent to the relay before the first response that uses it. */
  #numberOf(worker: WorkerSpec): number {
    let number = this.#workers.get(worker)
    if (number === undefined) {
      this.#workers.set(worker, (number = this.#nextWorker++))
      this.send(TELL.worker, number, to => {
        to.byte(roleByte(worker.role)).text(worker.id).text(worker.url)
        writeMaybe(to, worker.dpRank)
      })
    }
    return number
  }
}

const NO_EXCLUSIONS: ReadonlySet<string> = new Set()
