/**
 * The owner's side of all relays: one place where requests are let in and placed, so that decisions are those that one process would
 * have made in the order in which questions come. After another owner has died questions wait until every relay has said what it has.
 */
import type { Socket } from 'node:net'
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
  readonly log: Log
  logLevel(): string
}

/** What must be there before questions are answered, and how long they wait for it. */
export interface Awaited {
  readonly relays: readonly number[]
  /** Roles of which a worker was ready when the last owner died. */
  readonly roles: readonly Role[]
  readonly mostMs: number
}

export class OwnerServer {
  readonly parts: OwnerParts
  readonly #relays = new Set<RelaySession>()
  /** Relays that have not declared themselves. */
  readonly #missing: Set<number>
  readonly #roles: readonly Role[]
  #waiting: (() => void)[] | undefined = []
  readonly #timer: NodeJS.Timeout
  readonly #unsubscribe: () => void
  /** Hears of a relay that has gone. */
  gone: (relay: number) => void = () => {}
  /** What a relay that ends has counted. */
  lastWords: (relay: number, report: unknown) => void = () => {}

  constructor(parts: OwnerParts, { relays, roles, mostMs }: Awaited) {
    this.parts = parts
    this.#missing = new Set(relays)
    this.#roles = roles
    this.#timer = setTimeout(() => this.#open(), mostMs)
    this.#unsubscribe = parts.registry.subscribe(({ kind, worker }) => {
      for (const relay of this.#relays) relay.workerChanged(kind, worker)
      if (kind === 'unhealthy' && parts.registry.hasCandidates(worker.role, performance.now()))
        this.#lose(worker.id)
      this.#look()
    })
    this.#look()
  }

  get relays(): Iterable<RelaySession> {
    return this.#relays
  }

  connected(socket: Socket): void {
    const relay = new RelaySession(socket, this)
    this.#relays.add(relay)
    socket.once('close', () => {
      this.#relays.delete(relay)
      relay.gone()
      if (relay.number !== undefined) this.gone(relay.number)
      this.roomChanged()
    })
  }

  declared(relay: number): void {
    this.#missing.delete(relay)
    this.#look()
  }

  /** Somebody knows that it will not come. */
  relayDied(relay: number): void {
    this.declared(relay)
  }

  /** At once, or when all have declared themselves, in the order in which they came. */
  inTurn(answer: () => void): void {
    if (this.#waiting === undefined) answer()
    else this.#waiting.push(answer)
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

  /** Each may lose its share of the tries that there are: what is tried again takes leave for it first. */
  #lose(worker: string): void {
    const concerned = [...this.#relays].filter(relay => relay.isOn(worker))
    const share = Math.ceil(this.parts.budget.left / Math.max(1, concerned.length))
    for (const relay of concerned) relay.send(TELL.lost, 0, to => to.text(worker).number(share))
  }

  #look(): void {
    const ready = this.#roles.every(role => this.parts.registry.hasCandidates(role, performance.now()))
    if (this.#missing.size === 0 && ready) this.#open()
  }

  #open(): void {
    clearTimeout(this.#timer)
    const waiting = this.#waiting
    if (waiting === undefined) return
    this.#waiting = undefined
    if (this.#missing.size > 0)
      this.parts.log.warn(
        { relays: [...this.#missing] },
        'relays have not said what they have: they are not waited for',
      )
    for (const answer of waiting) answer()
  }
}
