/**
 * The replay back end: a request follows a row of a trace. The experts of its prompt are drawn from the row’s
 * counts, for each token by its fingerprint alone, so a cached prefix and a cold run agree however the prompt
 * is split. The experts of its decode steps are the recorded ones, repeated if the request is longer. The
 * text is plain words derived from fingerprints. A cost profile gives the duration of each step.
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
  KvPayload,
  KvTarget,
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
  /** A multiple of 8; default: 64. */
  readonly kvBytesPerToken?: number
}

export interface ReplaySequence extends BackEndSequence {
  readonly row: ReplayRow
  /** The fingerprint before the first token. */
  readonly root: Uint32Array
  /** Label for drawing its text. */
  readonly voice: number
}

/** Leading prompt tokens that select its row; independent of the block size, so that all workers agree. */
const ROW_TOKENS = 16
/** Labels of draws: layers count from 0; text has its own label, mixed with the seed. */
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
  /** Of the last step with decode items. */
  readonly #union: ExpertBits
  readonly #experts: Uint16Array

  constructor({ trace, profile, speed, kvBytesPerToken = 64 }: ReplaySettings, rows: ReplayRows) {
    const { layers, experts, topK } = trace
    this.model = { layers, experts, topK }
    this.bytesPerToken = kvBytesPerToken
    this.#trace = trace
    this.#pace = new StepPace(profile, speed)
    this.#rows = rows
    // Workers that replay other traces must not accept each other’s KV.
    this.#root = [trace.model, trace.workload, trace.split, trace.requests, layers, experts, topK].join(' ')
    this.#union = new ExpertBits(this.model, layerWeights(profile.shape.layers, layers))
    this.#experts = new Uint16Array(layers * topK)
  }

  allocate(blocks: number, blockTokens: number): void {
    this.#kv = new KvStore(blocks, blockTokens, this.bytesPerToken)
  }

  async prepare({
    promptIds,
    generated,
    row: named,
    temperature,
    seed = 0,
  }: Generation): Promise<ReplaySequence> {
    const row = await this.#rows.get(
      named ?? this.#rowOf(promptIds.subarray(0, promptIds.length - generated)),
    )
    // The row determines the experts of every token, so it is part of the first block’s hash even if it was
    // not given explicitly.
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

  exportKv({ row }: ReplaySequence, blocks: ArrayLike<number>, from: number, tokens: number): Uint8Array {
    return this.#kv.export(row.row, blocks, from, tokens)
  }

  importKv({ row, root }: ReplaySequence, payload: KvPayload, target: KvTarget): void {
    this.#kv.import(row.row, root, payload, target)
  }

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
    // Steps of the row count from the first token that was generated, on whichever worker.
    const firstStep = promptTokens - request.generated
    const width = layers * topK
    let before = from === 0 ? 0 : this.#kv.at(blocks, from - 1)
    for (let token = from; token < to; token++) {
      const at = this.#kv.at(blocks, token)
      follow(token === 0 ? root : slots, before, ids[token]!, slots, at)
      before = at
      // A cached generated token becomes part of a later prompt, so its row holds the experts that prefill
      // would choose.
      const step = token - firstStep
      const recorded = step >= 0 && row.steps > 0 ? (step % row.steps) * width : -1
      const isRecorded = record !== undefined && token >= promptTokens
      const isOwn = (decode || isRecorded) && recorded < 0
      if (sink !== undefined || isOwn) chooseExperts(row.chances, slots[at]!, slots[at + 1]!, this.#experts)
      sink?.put(blocks[Math.floor(token / blockTokens)]!, token % blockTokens, this.#experts, 0)
      const experts = recorded < 0 ? this.#experts : row.decode
      const start = Math.max(0, recorded)
      if (decode) this.#union.add(experts, start)
      if (isRecorded)
        record.set(experts.subarray(start, start + width), (token - Math.max(from, promptTokens)) * width)
    }
  }

  /** End of text after the row’s steps plus the prefill token; plain words before it. */
  #next({ sequence, request, length, blocks }: StepItem<ReplaySequence>): number {
    const made = length - request.promptIds.length + request.generated
    const least = Math.max(sequence.row.steps, request.minTokens + request.generated)
    if (!request.ignoreEos && made >= least) return EOS_ID
    const at = this.#kv.at(blocks, length - 1)
    return wordId(drawBits(this.#kv.slots[at]!, this.#kv.slots[at + 1]!, sequence.voice))
  }
}
