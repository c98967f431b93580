/** A steady load of known requests on several lanes, which can be paused, and clients that leave. */
import { createRandom, type Random } from '../../../src/math/random.ts'
import type { Running } from '../check/checker.ts'
import type { KnownAnswer, Observation } from '../observation.ts'
import { type Exchange, exchange } from './exchange.ts'

export interface LoadOptions {
  readonly known: readonly Pick<KnownAnswer, 'path' | 'body'>[]
  readonly lanesEach: number
  readonly seed: number
  readonly giveUpMs: number
}

/** A client waits after a failure, as a real one does. */
const AFTER_FAILURE_MS = 400
const [STREAMED, WITH_IDS, WITH_USAGE] = [0.85, 0.6, 0.5]

export class Load {
  readonly #options: LoadOptions
  readonly #random: Random
  readonly #running = new Map<number, Exchange>()
  #ended: Observation[] = []
  #lanes: Promise<void>[] = []
  #urls: Readonly<Record<string, string>> = {}
  #isPaused = true
  #ids = 0

  constructor(options: LoadOptions) {
    this.#options = options
    this.#random = createRandom(options.seed)
  }

  /** Sends to these gateways from now on. */
  resume(urls: Readonly<Record<string, string>>): void {
    this.#urls = urls
    this.#isPaused = false
    this.#lanes = Object.keys(urls).flatMap(gateway =>
      Array.from({ length: this.#options.lanesEach }, () => this.#lane(gateway)),
    )
  }

  /** Resolves when the last request has ended. */
  async pause(): Promise<void> {
    this.#isPaused = true
    await Promise.all(this.#lanes)
  }

  take(): { ended: Observation[]; running: Running[] } {
    const ended = this.#ended
    this.#ended = []
    const running = [...this.#running.values()].map(({ id, gateway, startMs }) => ({ id, gateway, startMs }))
    return { ended, running }
  }

  /** A share of the clients whose streams have begun leave. Returns how many did. */
  leave(share: number, seed: number): number {
    const random = createRandom(seed)
    const leaving = [...this.#running.values()].filter(one => one.isStreaming() && random.uniform() < share)
    for (const one of leaving) one.leave()
    return leaving.length
  }

  /** Requests to each gateway, at once. */
  probe(each: number): Promise<Observation[]> {
    const gateways = Object.keys(this.#urls)
    return Promise.all(
      gateways.flatMap(gateway => Array.from({ length: each }, () => this.#begin(gateway).ended)),
    )
  }

  async #lane(gateway: string): Promise<void> {
    while (!this.#isPaused) {
      const one = this.#begin(gateway)
      this.#running.set(one.id, one)
      const seen = await one.ended
      this.#running.delete(one.id)
      this.#ended.push(seen)
      const isWhole = seen.end === 'ended' && seen.codes.length === 0
      if (!isWhole) await new Promise(resolve => setTimeout(resolve, AFTER_FAILURE_MS))
    }
  }

  #begin(gateway: string): Exchange {
    const random = this.#random
    const { known, giveUpMs } = this.#options
    const ask = random.below(known.length)
    return exchange({
      id: ++this.#ids,
      ask,
      known: known[ask]!,
      gateway,
      url: this.#urls[gateway]!,
      stream: random.uniform() < STREAMED,
      wantIds: random.uniform() < WITH_IDS,
      wantUsage: random.uniform() < WITH_USAGE,
      giveUpMs,
    })
  }
}
