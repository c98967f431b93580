/** A request inside the engine: its tokens, its blocks and its progress. */
import type { BackEndSequence, Generation, GenerationEvents, TextStream } from '../types.ts'
import { type ChainHash, chainHash, chainRoot } from './kv-blocks.ts'

/**
 * preparing: the back end prepares it. waiting: queued or preempted. fetching: has blocks, its KV is being
 * fetched. ready: the KV has arrived. running: in the batch. ended: removed.
 */
export type SequenceState = 'preparing' | 'waiting' | 'fetching' | 'ready' | 'running' | 'ended'

export class Sequence {
  state: SequenceState = 'preparing'
  /** Set once prepared. */
  inner: BackEndSequence | undefined
  /** Prompt and generated tokens. */
  ids: Int32Array
  length: number
  /** Tokens whose KV is in the blocks. */
  computed = 0
  blocks = new Int32Array(8)
  blockCount = 0
  /**
   * Prompt tokens found in the prefix cache at its first start, −1 before. A preempted sequence finds its own
   * blocks, which is not a hit.
   */
  cachedTokens = -1
  /** Its remote KV has been requested. If it is preempted later, the tokens are recomputed locally. */
  fetched = false
  readonly stopFetch = new AbortController()
  /** Experts of generated tokens, in the format of RecordedDecode; grows. */
  recorded: Uint16Array | undefined
  readonly request: Generation
  readonly events: GenerationEvents
  readonly text: TextStream
  /** Chain hashes of its full blocks, computed on demand. */
  readonly #chain: ChainHash[] = []
  #root: ChainHash | undefined

  constructor(request: Generation, events: GenerationEvents, text: TextStream) {
    this.request = request
    this.events = events
    this.text = text
    this.length = request.promptIds.length
    this.ids = new Int32Array(this.length + Math.min(request.maxTokens, 64))
    this.ids.set(request.promptIds)
  }

  get promptLength(): number {
    return this.request.promptIds.length
  }

  get generated(): number {
    return this.length - this.promptLength
  }

  /** True if a step adds one token: all but the newest are in the blocks. */
  get decodes(): boolean {
    return this.computed === this.length - 1 && (this.generated > 0 || this.fetched)
  }

  append(id: number): void {
    if (this.length === this.ids.length) this.ids = grown(this.ids)
    this.ids[this.length++] = id
  }

  addBlock(block: number): void {
    if (this.blockCount === this.blocks.length) this.blocks = grown(this.blocks)
    this.blocks[this.blockCount++] = block
  }

  /**
   * Hash of the chain that ends with full block `index`. It never changes, because tokens are only appended.
   */
  chain(index: number, blockTokens: number): ChainHash {
    this.#root ??= chainRoot(this.inner!.salt)
    for (let i = this.#chain.length; i <= index; i++) {
      this.#chain.push(
        chainHash(this.#chain[i - 1] ?? this.#root, this.ids, i * blockTokens, (i + 1) * blockTokens),
      )
    }
    return this.#chain[index]!
  }

  /** Destination for the experts of generated tokens between `from` and `to`, `width` numbers per token. */
  recordAt(from: number, to: number, width: number): Uint16Array | undefined {
    if (!this.request.recordDecode || to <= this.promptLength) return undefined
    const [first, end] = [Math.max(0, from - this.promptLength), to - this.promptLength]
    this.recorded ??= new Uint16Array(16 * width)
    while (this.recorded.length < end * width) this.recorded = grown(this.recorded)
    return this.recorded.subarray(first * width, end * width)
  }
}

function grown<A extends Int32Array | Uint16Array>(array: A): A {
  const larger = new (array.constructor as new (length: number) => A)(2 * array.length)
  larger.set(array)
  return larger
}
