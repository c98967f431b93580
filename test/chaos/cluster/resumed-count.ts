/** Streams that the gateways resumed, if they count them. A restarted gateway counts from zero again. */
import type { Cluster } from './cluster.ts'
import { GATEWAYS, type GatewayName } from './machines.ts'

const SAMPLE = /^eldr_resumed_\w*total(?:\{[^}]*\})? (\S+)$/gm

export class ResumedCount {
  readonly #cluster: Cluster
  readonly #last = new Map<GatewayName, number>()
  /** Of gateways that have restarted. */
  #before = 0

  constructor(cluster: Cluster) {
    this.#cluster = cluster
  }

  get total(): number {
    return [...this.#last.values()].reduce((sum, count) => sum + count, this.#before)
  }

  async look(): Promise<void> {
    for (const name of GATEWAYS) {
      const { json } = await this.#cluster.call(name, 'GET', '/metrics')
      const count = [...(json as string).matchAll(SAMPLE)].reduce((sum, [, value]) => sum + Number(value), 0)
      const last = this.#last.get(name) ?? 0
      if (count < last) this.#before += last
      this.#last.set(name, count)
    }
  }
}
