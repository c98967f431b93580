/**
 * The owner's server for all relays. It admits and places all requests, so its decisions are those that a
 * single process would make for requests in the same order. After the death of another owner, requests wait
 * until every relay has declared what it has.
 */
import type { Socket } from 'node:net'
import type { EndedStream } from '../../../math/switchback.ts'
import type { HealthLoop } from '../../../cluster/health.ts'
import type { Registry } from '../../../cluster/registry.ts'
import type { RestartWatch } from '../../../cluster/restart-watch.ts'
import type { Role } from '../../../cluster/worker.ts'
import type { Admission } from '../../http/admission.ts'
import type { Pace } from '../../observe/insight/pace.ts'
import type { Log } from '../../observe/log/log.ts'
import type { LocalPlacementClient } from '../../routing/placement-client.ts'
import type { RetryBudget } from '../../routing/retry-budget.ts'
import type { Router } from '../../routing/router.ts'
import { ROOM, TELL } from './messages.ts'
import { RelaySession } from './relay-session.ts'

export interface OwnerParts {
  readonly placement: LocalPlacementClient
  readonly registry: Pick<Registry, 'adopt' | 'subscribe' | 'hasCandidates' | 'views'>
  readonly router: Pick<Router, 'adopt'>
  readonly admission: Admission
  readonly budget: Pick<RetryBudget, 'left'>
  readonly health: Pick<HealthLoop, 'passiveFailure'>
  readonly restarts: Pick<RestartWatch, 'sawEngineId'>
  readonly pace: Pick<Pace, 'firstByte' | 'stream' | 'onWorker'>
  /** Told of the responses that relays have passed on. */
  readonly streamEnded?: (stream: EndedStream) => void
  readonly log: Log
  logLevel(): string
}

/** What must be complete before requests of relays are served, and how long they wait for it. */
export interface StartConditions {
  readonly relays: readonly number[]
  /** Roles that had a ready worker when the last owner died. */
  readonly roles: readonly Role[]
  readonly timeoutMs: number
}

export class OwnerServer {
  readonly parts: OwnerParts
  readonly #relays = new Set<RelaySession>()
  /** Relays that have not declared their requests. */
  readonly #undeclared: Set<number>
  readonly #roles: readonly Role[]
  #waiting: (() => void)[] | undefined = []
  readonly #timer: NodeJS.Timeout
  readonly #unsubscribe: () => void
  /** Called when a relay has disconnected. */
  disconnected: (relay: number) => void = () => {}
  /** Called with the metrics of a relay that exits. */
  finalReport: (relay: number, report: unknown) => void = () => {}

  constructor(parts: OwnerParts, { relays, roles, timeoutMs }: StartConditions) {
    this.parts = parts
    this.#undeclared = new Set(relays)
    this.#roles = roles
    this.#timer = setTimeout(() => this.#open(), timeoutMs)
    this.#unsubscribe = parts.registry.subscribe(({ kind, worker }) => {
      for (const relay of this.#relays) relay.workerChanged(kind, worker)
      if (kind === 'unhealthy' && parts.registry.hasCandidates(worker.role, performance.now()))
        this.#workerLost(worker.id)
      this.#openIfReady()
    })
    this.#openIfReady()
  }

  get relays(): Iterable<RelaySession> {
    return this.#relays
  }

  connected(socket: Socket): void {
    const relay = new RelaySession(socket, this)
    this.#relays.add(relay)
    socket.once('close', () => {
      this.#relays.delete(relay)
      relay.disconnected()
      if (relay.number !== undefined) this.disconnected(relay.number)
      this.roomChanged()
    })
  }

  declared(relay: number): void {
    this.#undeclared.delete(relay)
    this.#openIfReady()
  }

  /** It will not declare anything. */
  relayDied(relay: number): void {
    this.declared(relay)
  }

  /** Runs immediately, or once all relays have declared their requests, in the order of the calls. */
  whenOpen(respond: () => void): void {
    if (this.#waiting === undefined) respond()
    else this.#waiting.push(respond)
  }

  room(): number {
    const { admission } = this.parts
    return (admission.isFull ? ROOM.full : 0) | (admission.mustWait ? ROOM.mustWait : 0)
  }

  roomChanged(): void {
    const room = this.room()
    for (const relay of this.#relays) relay.tellRoom(room)
  }

  levelChanged(): void {
    for (const relay of this.#relays) relay.send(TELL.logLevel, 0, to => to.text(this.parts.logLevel()))
  }

  close(): void {
    clearTimeout(this.#timer)
    this.#unsubscribe()
    for (const relay of this.#relays) relay.close()
  }

  /** Each relay may retry its share of the budget. A retry still takes from the budget before it starts. */
  #workerLost(worker: string): void {
    const affected = [...this.#relays].filter(relay => relay.isOn(worker))
    const share = Math.ceil(this.parts.budget.left / Math.max(1, affected.length))
    for (const relay of affected) relay.send(TELL.lost, 0, to => to.text(worker).number(share))
  }

  #openIfReady(): void {
    const ready = this.#roles.every(role => this.parts.registry.hasCandidates(role, performance.now()))
    if (this.#undeclared.size === 0 && ready) this.#open()
  }

  #open(): void {
    clearTimeout(this.#timer)
    const waiting = this.#waiting
    if (waiting === undefined) return
    this.#waiting = undefined
    if (this.#undeclared.size > 0)
      this.parts.log.warn(
        { relays: [...this.#undeclared] },
        'relays did not report their requests in time; continuing without them',
      )
    for (const respond of waiting) respond()
  }
}
