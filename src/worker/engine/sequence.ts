/** A request inside the engine: its tokens, its blocks, and how far it has come. */
import type { BackEndSequence, Generation, GenerationEvents, TextStream } from '../types.ts'
import { type ChainHash, chainHash, chainRoot } from './kv-blocks.ts'

/**
 * preparing: the back end gets it ready. waiting: queued, or preempted. fetching: has blocks, its KV is on the way. ready: the KV is
 * there. running: in the batch. ended: nothing of it is left.
 */
export type SequenceState = 'preparing' | 'waiting' | 'fetching' | 'ready' | 'running' | 'ended'

export class Sequence {
  state: SequenceState = 'preparing'
  /** Set once prepared. */
  inner: BackEndSequence | undefined
  /** Prompt and generated tokens. */
  ids: Int32Array
  length: number
  /** Tokens whose KV lies in the blocks. */
  computed = 0
  blocks = new Int32Array(8)
  blockCount = 0
  /** Prompt tokens that the prefix cache had when it first began, −1 before; a preempted one finds its own blocks, which is no hit. */
  cachedTokens = -1
  /** Its remote KV has been asked for; when it has to be computed again later, that happens here. */
  fetched = false
  readonly stopFetch = new AbortController()
  /** Experts of generated tokens, as RecordedDecode has them; grows. */
  recorded: Uint16Array | undefined
  readonly request: Generation
  readonly events: GenerationEvents
  readonly text: TextStream
  /** Chain hashes of its full blocks, as far as they were needed. */
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

  /** All but the newest token are in the blocks: a step adds one. */
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

  /** Hash of the chain that ends with the full block `index`. Tokens are only ever added, so it never changes. */
  chain(index: number, blockTokens: number): ChainHash {
    this.#root ??= chainRoot(this.inner!.salt)
    for (let i = this.#chain.length; i <= index; i++) {
      this.#chain.push(
        chainHash(this.#chain[i - 1] ?? this.#root, this.ids, i * blockTokens, (i + 1) * blockTokens),
      )
    }
    return this.#chain[index]!
  }

  /** Where the experts of tokens `from` up to `to` go, those of the prompt aside; `width` numbers each. */
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
