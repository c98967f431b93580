/**
 * Decode counts of the last requests of an engine, for a gateway that adapts its artifact to live traffic.
 */
import { type DecodedRequest, encodeDecoded, type WireDecoded } from '../../wire/decoded-requests.ts'
import type { ModelShape, RecordedDecode } from '../types.ts'

/** Requests between two visits of a gateway; older ones are dropped. */
const KEPT = 128

export class DecodedLog {
  readonly #model: ModelShape
  readonly #requests: (DecodedRequest & { readonly number: number })[] = []
  #last = 0

  constructor(model: ModelShape) {
    this.#model = model
  }

  add(id: string, { steps, ids }: RecordedDecode): void {
    if (steps === 0) return
    const { layers, experts, topK } = this.#model
    const counts = new Uint16Array(layers * experts)
    for (let at = 0; at < steps * layers * topK; at++)
      counts[(Math.floor(at / topK) % layers) * experts + ids[at]!]!++
    this.#requests.push({ number: ++this.#last, id, steps, counts })
    if (this.#requests.length > KEPT) this.#requests.shift()
  }

  /** `GET /eldr/decoded?after=NUMBER` */
  since(after: number): WireDecoded {
    const { layers, experts } = this.#model
    return {
      layers,
      experts,
      last: this.#last,
      requests: this.#requests.filter(({ number }) => number > after).map(encodeDecoded),
    }
  }
}
