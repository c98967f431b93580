/**
 * A switchback experiment: a client switches the policy slot by slot, and the gateway measures each slot. The
 * gateway holds the experiment under a lease. When the client ends it, stops renewing it, or the gateway
 * stops, the policy from before is restored. While it runs, nothing else changes policy, artifact or
 * clusters, except refits for other workers.
 */
import { randomBytes } from 'node:crypto'
import { type EndedStream, type SlotFigures, SlotRecord } from '../../../math/switchback.ts'
import type { PolicyName } from '../../../policy/decode-policy.ts'
import { Refusal } from '../../http/refusal.ts'
import type { LiveExperiment } from '../../observe/insight/wire.ts'
import type { Log } from '../../observe/log/log.ts'
import type { RoutingControl, RoutingHold } from '../../routing/routing-control.ts'

export interface ExperimentsOptions {
  readonly control: Pick<RoutingControl, 'hold' | 'view' | 'refuseIfLacking'>
  readonly log: Pick<Log, 'info' | 'warn'>
  /** Set if other gateways route requests to the same workers. */
  readonly hasReplicas: boolean
  readonly nowMs?: () => number
}

export interface ExperimentView extends LiveExperiment {
  readonly id?: string
  readonly policies?: readonly PolicyName[]
  readonly policy: PolicyName
  readonly restores?: PolicyName
  readonly leaseMs?: number
  /** The slot that this request has ended. */
  readonly finished?: FinishedSlot
}

export interface FinishedSlot extends SlotFigures {
  readonly slot: number
  readonly policy: PolicyName
}

export interface NextSlot {
  readonly policy: PolicyName
  readonly tau?: number | undefined
  readonly washoutMs: number
  /** Number of the slot. A repeated request for the current one does not start another. */
  readonly slot?: number | undefined
}

interface Running {
  readonly id: string
  readonly policies: readonly PolicyName[]
  readonly leaseMs: number
  readonly before: { readonly policy: PolicyName; readonly tau: number }
  readonly hold: RoutingHold
  lease: NodeJS.Timeout
  slots: number
  slot: { readonly policy: PolicyName; readonly record: SlotRecord } | undefined
  /** The slot before the current one. */
  finished: FinishedSlot | undefined
}

export class Experiments {
  readonly #options: ExperimentsOptions
  readonly #nowMs: () => number
  #running: Running | undefined

  constructor(options: ExperimentsOptions) {
    this.#options = options
    this.#nowMs = options.nowMs ?? (() => performance.now())
  }

  /** What is in force again after the experiment; undefined without one. */
  get restores(): Running['before'] | undefined {
    return this.#running?.before
  }

  start(policies: readonly PolicyName[], leaseMs: number): ExperimentView {
    const { control, log, hasReplicas } = this.#options
    if (hasReplicas)
      throw new Refusal('ELDR_EXPERIMENT_REFUSED', {
        words:
          'This gateway has replicas (replicas.url): their requests share its batches, and an experiment would switch one gateway only. Run one gateway for the experiment.',
      })
    for (const policy of policies) control.refuseIfLacking(policy)
    const id = randomBytes(6).toString('hex')
    const { policy, tau } = control.view()
    const hold = control.hold(
      `An experiment is running: it decides the policy. End it with DELETE /eldr/experiment/${id}, or wait until it ends.`,
    )
    this.#running = {
      id,
      policies,
      leaseMs,
      before: { policy, tau },
      hold,
      lease: this.#leaseFor(id, leaseMs),
      slots: 0,
      slot: undefined,
      finished: undefined,
    }
    log.info({ experiment: id, policies, leaseMs }, 'experiment started')
    return this.view()
  }

  /** Ends the current slot and starts the next one; without `next` it only renews the lease. */
  continue(id: string, next?: NextSlot): ExperimentView {
    const running = this.#withId(id)
    const isRepeated = next?.slot !== undefined && next.slot === running.slots
    if (next !== undefined && !isRepeated) this.#startSlot(running, next)
    clearTimeout(running.lease)
    running.lease = this.#leaseFor(id, running.leaseMs)
    return next === undefined ? this.view() : { ...this.view(), finished: running.finished }
  }

  #startSlot(running: Running, { policy, tau = running.before.tau, washoutMs, slot }: NextSlot): void {
    if (slot !== undefined && slot !== running.slots + 1)
      throw new Refusal('ELDR_EXPERIMENT_REFUSED', {
        words: `slot must be ${running.slots} or ${running.slots + 1}: the current slot or the next one.`,
        param: 'slot',
      })
    if (!running.policies.includes(policy))
      throw new Refusal('ELDR_EXPERIMENT_REFUSED', {
        words: `policy must be one of the experiment’s: ${running.policies.join(', ')}.`,
        param: 'policy',
      })
    const finished = this.#finish(running)
    running.hold.setPolicy({ policy, tau })
    running.finished = finished
    running.slots++
    running.slot = { policy, record: new SlotRecord(this.#nowMs(), washoutMs) }
  }

  end(id: string, why = 'the client ended it'): ExperimentView {
    const running = this.#withId(id)
    clearTimeout(running.lease)
    const finished = this.#finish(running)
    this.#running = undefined
    const { policy, tau } = running.hold.release(running.before)
    const lapsed = why === LEASE_EXPIRED
    this.#options.log[lapsed ? 'warn' : 'info'](
      { experiment: id, slots: running.slots, why, policy, tau },
      'experiment ended, policy restored',
    )
    return { ...this.view(), finished }
  }

  streamEnded(stream: EndedStream): void {
    this.#running?.slot?.record.ended(stream, this.#nowMs())
  }

  view(): ExperimentView {
    const { policy } = this.#options.control.view()
    if (this.#running === undefined) return { running: false, policy }
    const { id, policies, slots, before, leaseMs } = this.#running
    return { running: true, id, policies, slot: slots, policy, restores: before.policy, leaseMs }
  }

  close(): void {
    if (this.#running !== undefined) this.end(this.#running.id, 'the gateway is shutting down')
  }

  #withId(id: string): Running {
    if (this.#running?.id !== id) throw new Refusal('ELDR_EXPERIMENT_UNKNOWN')
    return this.#running
  }

  #leaseFor(id: string, leaseMs: number): NodeJS.Timeout {
    return setTimeout(() => this.end(id, LEASE_EXPIRED), leaseMs).unref()
  }

  #finish({ slot, slots }: Running): FinishedSlot | undefined {
    return slot && { slot: slots, policy: slot.policy, ...slot.record.figures(this.#nowMs()) }
  }
}

const LEASE_EXPIRED = 'its lease expired: the client did not renew it'
