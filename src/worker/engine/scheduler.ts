/**
 * Plans which sequences compute how many tokens in the next step. Order: decoding sequences, started prompts,
 * sequences whose KV has arrived, then new ones by arrival, all within a token budget. Blocks for all tokens
 * of a sequence are allocated when it starts. If a decoding sequence finds no free block for its next token,
 * the sequence that started last is preempted: it goes to the head of the queue and recomputes its tokens.
 * Sequences that hold blocks never wait for one that holds none, so there is no deadlock.
 */
import type { EngineSettings } from '../types.ts'
import type { KvBlocks } from './kv-blocks.ts'
import type { Sequence } from './sequence.ts'

/** Tokens `from` (inclusive) to `to` (exclusive) of a sequence. */
export interface PlannedWork {
  readonly sequence: Sequence
  readonly from: number
  readonly to: number
  readonly decode: boolean
}

export class Scheduler {
  preemptions = 0
  /** In tokens, counted once per request. */
  prefixQueries = 0
  prefixHits = 0
  /** In the order in which they started. */
  readonly running: Sequence[] = []
  readonly waiting: Sequence[] = []
  readonly fetching = new Set<Sequence>()
  readonly ready: Sequence[] = []
  readonly #settings: EngineSettings
  readonly #blocks: KvBlocks
  readonly #fetch: (sequence: Sequence) => void

  /** `fetch` is called when a sequence has its blocks; call `arrived` when its KV is in them. */
  constructor(settings: EngineSettings, blocks: KvBlocks, fetch: (sequence: Sequence) => void) {
    this.#settings = settings
    this.#blocks = blocks
    this.#fetch = fetch
  }

  add(sequence: Sequence): void {
    sequence.state = 'waiting'
    this.waiting.push(sequence)
  }

  /**
   * The KV of its first `tokens` tokens is in its blocks. The last token is always computed here, because it
   * produces the next one.
   */
  arrived(sequence: Sequence, tokens: number): void {
    this.fetching.delete(sequence)
    sequence.state = 'ready'
    this.ready.push(sequence)
    this.#remember(sequence, sequence.computed, tokens)
    sequence.computed = Math.max(sequence.computed, Math.min(tokens, sequence.length - 1))
  }

  /** Removes it from every list and releases its blocks. */
  remove(sequence: Sequence): void {
    drop(this.running, sequence)
    drop(this.waiting, sequence)
    drop(this.ready, sequence)
    this.fetching.delete(sequence)
    this.#free(sequence)
    sequence.state = 'ended'
  }

  /** The same, but the caller takes over the blocks of its first `tokens` tokens and must release them. */
  removeKeeping(sequence: Sequence, tokens: number): Int32Array {
    const kept = sequence.blocks.slice(0, this.#blocksOf(tokens))
    for (const block of kept) this.#blocks.share(block)
    this.remove(sequence)
    return kept
  }

  plan(): PlannedWork[] {
    const work: PlannedWork[] = []
    let budget = this.#settings.maxBatchedTokens
    const add = (sequence: Sequence) => {
      const from = sequence.computed
      const to = Math.min(sequence.length, from + budget)
      if (to === from) return
      budget -= to - from
      work.push({ sequence, from, to, decode: sequence.decodes })
    }
    const preemptionsBefore = this.preemptions
    for (const sequence of this.running.filter(({ decodes }) => decodes))
      if (this.#grow(sequence)) add(sequence)
    for (const sequence of this.running.filter(({ decodes }) => !decodes)) add(sequence)
    while (this.ready.length > 0 && this.#hasRoom(budget)) add(this.#start(this.ready.shift()!))
    // A sequence that was just preempted would immediately take back the room that it made.
    if (this.preemptions > preemptionsBefore) return work
    while (this.waiting.length > 0 && this.#hasRoom(budget) && this.#allocate(this.waiting[0]!)) {
      const sequence = this.waiting.shift()!
      if (sequence.request.remote === undefined || sequence.fetched) add(this.#start(sequence))
      else this.#startFetch(sequence)
    }
    return work
  }

  /** The work is done: its KV is in the blocks, and full blocks enter the prefix cache. */
  done({ sequence, from, to }: PlannedWork): void {
    sequence.computed = to
    this.#remember(sequence, from, to)
  }

  #hasRoom(budget: number): boolean {
    return budget > 0 && this.running.length < this.#settings.maxSeqs
  }

  #start(sequence: Sequence): Sequence {
    sequence.state = 'running'
    this.running.push(sequence)
    return sequence
  }

  #startFetch(sequence: Sequence): void {
    sequence.state = 'fetching'
    sequence.fetched = true
    this.fetching.add(sequence)
    this.#fetch(sequence)
  }

  /** Allocates blocks for all its tokens, cached ones first; false if there are too few. */
  #allocate(sequence: Sequence): boolean {
    const hits = this.#settings.prefixCaching ? this.#cachedBlocks(sequence) : []
    const fresh = this.#blocksOf(sequence.length) - hits.length
    if (this.#blocks.freeBeside(hits) < fresh) return false
    for (const block of hits) {
      this.#blocks.share(block)
      sequence.addBlock(block)
    }
    for (let i = 0; i < fresh; i++) sequence.addBlock(this.#blocks.take())
    sequence.computed = hits.length * this.#settings.blockTokens
    if (sequence.cachedTokens < 0) {
      sequence.cachedTokens = sequence.computed
      this.prefixQueries += this.#settings.prefixCaching ? sequence.length : 0
      this.prefixHits += sequence.computed
    }
    return true
  }

  /** Leading full blocks in the prefix cache, never the block of the last token, which must be computed. */
  #cachedBlocks(sequence: Sequence): number[] {
    const { blockTokens } = this.#settings
    const blocks: number[] = []
    for (let i = 0; (i + 1) * blockTokens < sequence.length; i++) {
      const block = this.#blocks.find(sequence.chain(i, blockTokens))
      if (block === undefined) break
      blocks.push(block)
    }
    return blocks
  }

  /**
   * Allocates a slot for its newest token, preempting others if necessary; false if it was preempted itself.
   */
  #grow(sequence: Sequence): boolean {
    if (sequence.state !== 'running') return false // preempted for an earlier sequence
    if (this.#blocksOf(sequence.length) === sequence.blockCount) return true
    while (this.#blocks.free === 0) {
      const last = this.running.at(-1)!
      this.#preempt(last)
      if (last === sequence) return false
    }
    sequence.addBlock(this.#blocks.take())
    return true
  }

  #preempt(sequence: Sequence): void {
    this.preemptions++
    this.running.pop()
    this.#free(sequence)
    sequence.computed = 0
    sequence.state = 'waiting'
    this.waiting.unshift(sequence)
  }

  #remember(sequence: Sequence, from: number, to: number): void {
    if (!this.#settings.prefixCaching) return
    const { blockTokens } = this.#settings
    for (let i = Math.floor(from / blockTokens); (i + 1) * blockTokens <= to; i++) {
      this.#blocks.remember(sequence.blocks[i]!, sequence.chain(i, blockTokens))
    }
  }

  #free(sequence: Sequence): void {
    for (let i = sequence.blockCount - 1; i >= 0; i--) this.#blocks.giveBack(sequence.blocks[i]!)
    sequence.blockCount = 0
  }

  #blocksOf(tokens: number): number {
    return Math.ceil(tokens / this.#settings.blockTokens)
  }
}

function drop(list: Sequence[], sequence: Sequence): void {
  const at = list.indexOf(sequence)
  if (at >= 0) list.splice(at, 1)
}
