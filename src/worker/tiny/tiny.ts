/**
 * The tiny back end: a real mixture-of-experts model, computed on this CPU over the worker’s KV blocks. Its
 * gate chooses the experts and its weights produce the text. Steps take the time they need, or the time of a
 * cost profile for the active experts.
 */
import { randomInt } from 'node:crypto'
import { type CostProfile, layerWeights } from '../../cost/profile.ts'
import { RequestFault } from '../engine/request-fault.ts'
import { ExpertBits } from '../expert-bits.ts'
import { StepPace } from '../step-pace.ts'
import type {
  BackEnd,
  BackEndSequence,
  ExpertSink,
  Generation,
  KvPayload,
  KvTarget,
  ModelShape,
  StepItem,
  StepResult,
  Tokenizer,
} from '../types.ts'
import type { TinyConfig } from './config.ts'
import { Forward } from './forward.ts'
import { createTinyKernel, type TinyKernel } from './kernel.ts'
import { exportKv, importKv, type KvModel } from './kv-payload.ts'
import { SLICE } from './memory.ts'
import type { TinyModel } from './model-folder.ts'
import { areFinite, drawAt, GREEDY_BELOW, mostLikely, sampleToken } from './sampling.ts'

export interface TinySettings {
  readonly model: TinyModel
  /**
   * `real`: as fast as this CPU allows. Otherwise steps that are faster are stretched to the profile’s time
   * divided by the speed.
   */
  readonly pace: 'real' | { readonly profile: CostProfile; readonly speed: number }
  /** Default: SIMD if available. */
  readonly kernel?: (bytes: number) => TinyKernel
}

export interface TinySequence extends BackEndSequence {
  readonly seed: number
  readonly promptIds: Int32Array
}

/** An infinite temperature makes all tokens equally likely; 0 × ∞ would be NaN. */
const LEAST_SCALE = 1e-30

const OVERFLOW =
  'The model computed non-finite logits: its weights or configuration do not match its training.'

/** Tokens `from` (inclusive) to `to` (exclusive) of an item; the first is the slice’s token `at`. */
interface Piece {
  readonly index: number
  readonly item: StepItem<TinySequence>
  readonly from: number
  readonly to: number
  readonly at: number
}

export function createTiny(settings: TinySettings): BackEnd<TinySequence> {
  return new Tiny(settings)
}

class Tiny implements BackEnd<TinySequence> {
  readonly model: ModelShape
  readonly tokenizer: Tokenizer
  readonly bytesPerToken: number
  readonly #config: TinyConfig
  readonly #kernel: (bytes: number) => TinyKernel
  readonly #pace: StepPace | undefined
  readonly #union: ExpertBits
  readonly #fingerprint: Buffer
  readonly #endIds: readonly number[]
  /** Until they are in the kernel’s memory. */
  #weights: Float32Array | undefined
  #forward: Forward | undefined
  #blockTokens = 0

  constructor({ model, pace, kernel = createTinyKernel }: TinySettings) {
    const { layers, experts, topK, kvHeads, headWidth } = model.config
    this.model = { layers, experts, topK }
    this.tokenizer = model.tokenizer
    this.bytesPerToken = 4 * 2 * layers * kvHeads * headWidth
    this.#config = model.config
    this.#kernel = kernel
    this.#weights = model.weights
    this.#fingerprint = model.fingerprint
    this.#endIds = model.generation.endIds
    this.#pace = pace === 'real' ? undefined : new StepPace(pace.profile, pace.speed)
    this.#union = new ExpertBits(
      this.model,
      layerWeights(pace === 'real' ? layers : pace.profile.shape.layers, layers),
    )
  }

  allocate(blocks: number, blockTokens: number): void {
    this.#blockTokens = blockTokens
    this.#forward = new Forward(this.#config, this.#weights!, blocks, blockTokens, this.#kernel)
    this.#weights = undefined
  }

  async prepare({ promptIds, maxTokens, seed }: Generation): Promise<TinySequence> {
    const { vocabulary, positions } = this.#config
    const outside = promptIds.find(id => id < 0 || id >= vocabulary)
    if (outside !== undefined) throw new RequestFault(400, `Token id ${outside} is out of vocabulary`)
    const tokens = promptIds.length + maxTokens
    if (tokens > positions)
      throw new RequestFault(
        400,
        `This model has ${positions} positions; prompt and response would have ${tokens} tokens.`,
      )
    return {
      salt: `tiny ${this.#fingerprint.toString('hex')}`,
      promptIds,
      seed: seed ?? randomInt(2 ** 48 - 1),
    }
  }

  step(items: readonly StepItem<TinySequence>[], sink: ExpertSink | undefined): StepResult {
    const forward = this.#forward!
    const next = new Int32Array(items.length)
    const faults = new Map<number, Error>()
    const decodes = items.some(({ decode }) => decode)
    if (decodes) this.#union.clear()
    for (const pieces of slices(items)) {
      forward.run(pieces.map(({ item: { ids, blocks }, from, to }) => ({ ids, from, to, blocks })))
      for (const piece of pieces) this.#reportExperts(piece, sink)
      const last = pieces.filter(({ item, to }) => to === item.length)
      if (last.length === 0) continue
      const logits = forward.logits(last.map(({ at, from, to }) => at + to - from - 1))
      last.forEach(({ index, item }, i) => {
        if (areFinite(logits[i]!)) next[index] = this.#next(item, logits[i]!)
        else faults.set(index, new RequestFault(500, OVERFLOW))
      })
    }
    if (decodes) this.#union.count()
    const { perLayer, active } = this.#union
    return { next, faults, ms: this.#pace?.stepMs(items, active) ?? 0, activePerLayer: perLayer, active }
  }

  union(out: Uint8Array): void {
    this.#union.write(out)
  }

  exportKv({ promptIds }: TinySequence, blocks: ArrayLike<number>, from: number, tokens: number): Uint8Array {
    return exportKv(this.#kvModel, { ids: promptIds, from, tokens, blocks })
  }

  importKv(_: TinySequence, { bytes }: KvPayload, target: KvTarget): void {
    importKv(this.#kvModel, bytes, target)
  }

  get #kvModel(): KvModel {
    return { forward: this.#forward!, layers: this.model.layers, fingerprint: this.#fingerprint }
  }

  transferMs(tokens: number): number {
    return this.#pace?.transferMs(tokens) ?? 0
  }

  async close(): Promise<void> {
    this.#forward = undefined
  }

  #reportExperts({ item, from, to, at }: Piece, sink: ExpertSink | undefined): void {
    const { experts } = this.#forward!
    const { request, blocks, decode, record } = item
    const width = this.model.layers * this.model.topK
    const firstRecorded = Math.max(item.from, request.promptIds.length)
    for (let token = from, own = at * width; token < to; token++, own += width) {
      sink?.put(blocks[Math.floor(token / this.#blockTokens)]!, token % this.#blockTokens, experts, own)
      if (decode) this.#union.add(experts, own)
      if (token >= firstRecorded)
        record?.set(experts.subarray(own, own + width), (token - firstRecorded) * width)
    }
  }

  #next({ sequence, request, length }: StepItem<TinySequence>, logits: Float32Array): number {
    const { temperature, topK, topP, minTokens, stopTokenIds } = request
    // Before `minTokens`, end-of-text and stop tokens have probability 0.
    if (length - request.promptIds.length < minTokens) {
      for (const id of this.#endIds) logits[id] = -Infinity
      for (const id of stopTokenIds) logits[id] = -Infinity
    }
    if (temperature < GREEDY_BELOW) return mostLikely(logits)
    this.#forward!.kernel.softmax(logits.byteOffset, 1, logits.length, Math.max(LEAST_SCALE, 1 / temperature))
    return sampleToken(logits, topK, topP, drawAt(sequence.seed, length))
  }
}

/** All tokens of a step in order, at most SLICE at a time. */
function* slices(items: readonly StepItem<TinySequence>[]): Generator<Piece[]> {
  let pieces: Piece[] = []
  let at = 0
  for (const [index, item] of items.entries()) {
    for (let from = item.from; from < item.to;) {
      const to = Math.min(item.to, from + SLICE - at)
      pieces.push({ index, item, from, to, at })
      at += to - from
      from = to
      if (at < SLICE) continue
      yield pieces
      ;[pieces, at] = [[], 0]
    }
  }
  if (pieces.length > 0) yield pieces
}
