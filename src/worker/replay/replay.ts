/**
 * The replay back end: a request follows a row of a trace. Experts of its prompt are drawn from the row's counts, each token's by its
 * fingerprint alone, so that a cached prefix and a cold run agree whatever the chunks; experts of its decode steps are the recorded ones,
 * from the start again when it is longer. Text is plain words made of fingerprints. A step takes the time that a cost profile gives it.
 */
import { type CostProfile, layerWeights } from '../../cost/profile.ts'
import type { Trace } from '../../trace/trace.ts'
import { ExpertBits } from '../expert-bits.ts'
import { StepPace } from '../step-pace.ts'
import type {
  BackEnd,
  BackEndSequence,
  ExpertSink,
  Generation,
  ModelShape,
  StepItem,
  StepResult,
} from '../types.ts'
import { chooseExperts } from './choose.ts'
import { drawBits, follow, rootOf } from './fingerprint.ts'
import { KvStore } from './kv-store.ts'
import { type ReplayRow, ReplayRows } from './rows.ts'
import { EOS_ID, replayTokenizer, wordId } from './tokenizer.ts'

export interface ReplaySettings {
  /** Closed with the back end. */
  readonly trace: Trace
  readonly profile: CostProfile
  /** Times are divided by it; Infinity: steps take no time. */
  readonly speed: number
  /** A multiple of 8; 64 unless told. */
  readonly kvBytesPerToken?: number
}

export interface ReplaySequence extends BackEndSequence {
  readonly row: ReplayRow
  /** What the first token's fingerprint follows. */
  readonly root: Uint32Array
  /** Label of the draws of its text. */
  readonly voice: number
}

/** Tokens at the start of a prompt that choose its row; workers agree on it whatever their block size. */
const ROW_TOKENS = 16
/** Labels of draws: layers count from 0, text has one of its own, mixed with the seed. */
const TEXT_LABEL = 0x7e870000

export async function createReplay(settings: ReplaySettings): Promise<BackEnd<ReplaySequence>> {
  const rows = new ReplayRows(settings.trace)
  await rows.check()
  return new Replay(settings, rows)
}

class Replay implements BackEnd<ReplaySequence> {
  readonly model: ModelShape
  readonly tokenizer = replayTokenizer
  readonly bytesPerToken: number
  readonly #trace: Trace
  readonly #pace: StepPace
  readonly #rows: ReplayRows
  readonly #root: string
  #kv = new KvStore(0, 1, 8)
  /** Of the last step with a decode. */
  readonly #union: ExpertBits
  readonly #experts: Uint16Array

  constructor({ trace, profile, speed, kvBytesPerToken = 64 }: ReplaySettings, rows: ReplayRows) {
    const { layers, experts, topK } = trace
    this.model = { layers, experts, topK }
    this.bytesPerToken = kvBytesPerToken
    this.#trace = trace
    this.#pace = new StepPace(profile, speed)
    this.#rows = rows
    // Workers that replay other traces do not take each other's KV for their own.
    this.#root = [trace.model, trace.workload, trace.split, trace.requests, layers, experts, topK].join(' ')
    this.#union = new ExpertBits(this.model, layerWeights(profile.shape.layers, layers))
    this.#experts = new Uint16Array(layers * topK)
  }

  allocate(blocks: number, blockTokens: number): void {
    this.#kv = new KvStore(blocks, blockTokens, this.bytesPerToken)
  }

  async prepare({ promptIds, row: named, temperature, seed = 0 }: Generation): Promise<ReplaySequence> {
    const row = await this.#rows.get(named ?? this.#rowOf(promptIds))
    // The row decides the experts of every token, so it goes into the first block's hash, whether it was named or not.
    const salt = `${this.#root} ${row.row}`
    return {
      salt,
      row,
      root: rootOf(salt),
      voice: temperature === 0 ? TEXT_LABEL : (TEXT_LABEL ^ Math.imul(seed + 1, 0x2545f491)) | 0,
    }
  }

  step(items: readonly StepItem<ReplaySequence>[], sink: ExpertSink | undefined): StepResult {
    const next = new Int32Array(items.length)
    const decodes = items.some(({ decode }) => decode)
    if (decodes) this.#union.clear()
    items.forEach((item, i) => {
      this.#compute(item, sink)
      if (item.to === item.length) next[i] = this.#next(item)
    })
    if (decodes) this.#union.count()
    const { perLayer, active } = this.#union
    return { next, ms: this.#pace.stepMs(items, active), activePerLayer: perLayer, active }
  }

  union(out: Uint8Array): void {
    this.#union.write(out)
  }

  exportKv({ row }: ReplaySequence, blocks: ArrayLike<number>, tokens: number): Uint8Array {
    return this.#kv.export(row.row, blocks, tokens)
  }

  importKv: BackEnd<ReplaySequence>['importKv'] = ({ row, root }, payload, ids, from, tokens, blocks) =>
    this.#kv.import(row.row, root, payload, ids, from, tokens, blocks)

  transferMs(tokens: number): number {
    return this.#pace.transferMs(tokens)
  }

  close(): Promise<void> {
    return this.#trace.close()
  }

  #rowOf(promptIds: Int32Array): number {
    const hash = rootOf(this.#root)
    for (let i = 0; i < Math.min(ROW_TOKENS, promptIds.length); i++) follow(hash, 0, promptIds[i]!, hash, 0)
    return drawBits(hash[0]!, hash[1]!, 0) % this.#rows.count
  }

  #compute(
    { sequence, request, ids, from, to, blocks, decode, record }: StepItem<ReplaySequence>,
    sink: ExpertSink | undefined,
  ): void {
    const { layers, topK } = this.model
    const { slots, blockTokens } = this.#kv
    const { row, root } = sequence
    const promptTokens = request.promptIds.length
    const width = layers * topK
    let before = from === 0 ? 0 : this.#kv.at(blocks, from - 1)
    for (let token = from; token < to; token++) {
      const at = this.#kv.at(blocks, token)
      follow(token === 0 ? root : slots, before, ids[token]!, slots, at)
      before = at
      // A generated token that is cached becomes part of a later prompt: its row has what prefill would have chosen.
      const generated = token - promptTokens
      const recorded = generated >= 0 && row.steps > 0 ? (generated % row.steps) * width : -1
      const isOwn = (decode || (record !== undefined && generated >= 0)) && recorded < 0
      if (sink !== undefined || isOwn)
        chooseExperts(row.chances, layers, topK, slots[at]!, slots[at + 1]!, this.#experts)
      sink?.put(blocks[Math.floor(token / blockTokens)]!, token % blockTokens, this.#experts, 0)
      const experts = recorded < 0 ? this.#experts : row.decode
      const start = Math.max(0, recorded)
      if (decode) this.#union.add(experts, start)
      if (record !== undefined && generated >= 0)
        record.set(experts.subarray(start, start + width), (token - Math.max(from, promptTokens)) * width)
    }
  }

  /** The end of the text after the row's steps and one, which prefill makes; plain words before it. */
  #next({ sequence, request, length, blocks }: StepItem<ReplaySequence>): number {
    const made = length - request.promptIds.length
    if (!request.ignoreEos && made >= Math.max(sequence.row.steps, request.minTokens)) return EOS_ID
    const at = this.#kv.at(blocks, length - 1)
    return wordId(drawBits(this.#kv.slots[at]!, this.#kv.slots[at + 1]!, sequence.voice))
  }
}
