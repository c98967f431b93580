/**
 * Random faults: paths that are cut (one way or both), slow or lossy for a while, and a store that is killed.
 */
import type { Random } from '../../../src/math/random.ts'
import { type Cluster, GATEWAYS, type Machine, WORKERS } from './cluster.ts'

/** Longest time between two faults. Several are active at a time. */
const STEP_MS = 600
/** Limit of faulty paths: with more, nothing would get through and nothing would be tested. */
const MAX_FAULTY = 10
/** Machines that communicate. */
const LINKS: readonly (readonly [Machine, Machine])[] = [
  ...GATEWAYS.flatMap(gateway =>
    (['store', 'client', ...WORKERS] as const).map(other => [gateway, other] as const),
  ),
  ...(['p1', 'p2'] as const).flatMap(prefill =>
    (['d1', 'd2'] as const).map(decode => [decode, prefill] as const),
  ),
]
const POLICIES = ['jsq', 'union', 'power_of_two'] as const

export class Chaos {
  readonly #cluster: Cluster
  readonly #random: Random
  readonly #faulty: (readonly [Machine, Machine])[] = []
  steps = 0

  constructor(cluster: Cluster, random: Random) {
    this.#cluster = cluster
    this.#random = random
  }

  /** The pauses are part of the test and do not wait for anything. */
  async run(ms: number): Promise<void> {
    const endMs = performance.now() + ms
    while (performance.now() < endMs) {
      await this.#step()
      this.steps++
      await new Promise(resolve => setTimeout(resolve, 100 + this.#random.below(STEP_MS - 100)))
    }
  }

  /** Removes all faults. Returns how long the cluster took to recover. */
  async heal(): Promise<number> {
    await this.#cluster.network.heal()
    return this.#cluster.together()
  }

  async #step(): Promise<void> {
    const drawn = this.#random.uniform()
    if (drawn < 0.06) return this.#restartStore()
    if (drawn < 0.12) return this.#changePolicy()
    if (this.#faulty.length >= MAX_FAULTY || (drawn < 0.25 && this.#faulty.length > 0))
      return this.#repairPath()
    await this.#breakPath()
  }

  async #breakPath(): Promise<void> {
    const { network } = this.#cluster
    const link = this.#pick(LINKS)
    const [from, to] = this.#random.below(2) === 0 ? link : ([link[1], link[0]] as const)
    const kind = this.#random.below(4)
    const rule =
      kind < 2
        ? { cut: true }
        : kind === 2
          ? { delayMs: 20 + this.#random.below(200), jitterMs: 20 }
          : { loss: 0.05 + 0.3 * this.#random.uniform() }
    const paths = kind === 0 ? [[from, to] as const] : [[from, to] as const, [to, from] as const]
    for (const path of paths) {
      await network.rule(...path, rule)
      this.#faulty.push(path)
    }
  }

  async #repairPath(): Promise<void> {
    const [path] = this.#faulty.splice(this.#random.below(this.#faulty.length), 1)
    await this.#cluster.network.rule(...path!, {})
  }

  async #restartStore(): Promise<void> {
    await this.#cluster.killStore()
    await this.#cluster.startStore()
  }

  /** From the observer's machine, which always reaches both gateways. */
  async #changePolicy(): Promise<void> {
    await this.#cluster.change(this.#pick(GATEWAYS), 'PUT', '/eldr/policy', { policy: this.#pick(POLICIES) })
  }

  #pick<T>(of: readonly T[]): T {
    return of[this.#random.below(of.length)]!
  }
}
