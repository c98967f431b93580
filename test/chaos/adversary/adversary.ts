/** Carries out steps at their times, ends each fault after its own time, and records it for the checker. */
import { setMaxListeners } from 'node:events'
import type { AdminLedger } from '../check/admin-ledger.ts'
import type { Cluster } from '../cluster/cluster.ts'
import { type Fault, nowMs } from '../observation.ts'
import { clientFaults } from './client-faults.ts'
import { networkFaults } from './network-faults.ts'
import { operatorFaults } from './operator-faults.ts'
import { processFaults } from './process-faults.ts'
import type { KindName } from './kinds.ts'
import type { Step } from './schedule.ts'

export interface Scene {
  readonly cluster: Cluster
  readonly ledger: AdminLedger
  /** Reports a problem that a step itself finds. */
  readonly report: (what: string, detail: string) => void
  /** Where operators send their calls; a planted proxy may be in front of a gateway. */
  readonly call: Cluster['call']
}

/** Begins a fault. Returns what ends it, if it lasts, and settles when it has recovered. */
export type Action = (scene: Scene, step: Step) => Promise<(() => void | Promise<void>) | void>

const ACTIONS: Readonly<Record<KindName, Action>> = {
  ...processFaults,
  ...networkFaults,
  ...operatorFaults,
  ...clientFaults,
}

export class Adversary {
  readonly #scene: Scene
  readonly #faults: Fault[]
  readonly #say: (text: string) => void
  readonly #active = new Set<Promise<void>>()
  /** Ends the waiting of faults that last. */
  #hurry = new AbortController()

  constructor(scene: Scene, faults: Fault[], say: (text: string) => void) {
    this.#scene = scene
    this.#faults = faults
    this.#say = say
  }

  /** Runs a round. `afterEach` runs after every step. The pauses are part of the schedule. */
  async run(steps: readonly Step[], roundMs: number, afterEach: () => Promise<void>): Promise<void> {
    this.#hurry = new AbortController()
    setMaxListeners(steps.length, this.#hurry.signal)
    const startMs = nowMs()
    for (const step of steps) {
      await pause(startMs + step.atMs - nowMs())
      this.#begin(step)
      await afterEach()
    }
    await pause(startMs + roundMs - nowMs())
  }

  /** Ends all faults and resolves when everything runs again. */
  async heal(): Promise<void> {
    this.#hurry.abort()
    await Promise.all(this.#active)
    await this.#scene.cluster.machines.network?.heal()
  }

  #begin(step: Step): void {
    const fault: Fault = { id: step.id, kind: step.kind, targets: step.targets, startMs: nowMs() }
    this.#faults.push(fault)
    this.#say(
      `  ${step.id} ${step.kind} ${step.targets.join('–')}${step.forMs > 0 ? ` for ${step.forMs} ms` : ''}`,
    )
    const running = this.#carryOut(step)
      .catch((error: Error) =>
        this.#scene.report('adversary failed', `${step.id} ${step.kind}: ${error.message}`),
      )
      .finally(() => {
        fault.endMs = nowMs()
        this.#active.delete(running)
      })
    this.#active.add(running)
  }

  async #carryOut(step: Step): Promise<void> {
    const end = await ACTIONS[step.kind](this.#scene, step)
    if (end === undefined) return
    await pause(step.forMs, this.#hurry.signal)
    await end()
  }
}

/** Not to wait for anything: the time is the schedule's. */
function pause(ms: number, signal?: AbortSignal): Promise<void> {
  if (ms <= 0 || signal?.aborted === true) return Promise.resolve()
  return new Promise(resolve => {
    const timer = setTimeout(resolve, ms)
    signal?.addEventListener('abort', () => {
      clearTimeout(timer)
      resolve()
    })
  })
}
