/**
 * One block of memory for the model: weights, tables, buffers of a slice of tokens, and the KV of all blocks.
 */
import { EldrError } from '../../errors.ts'
import type { TinyConfig } from './config.ts'
import { MAX_KERNEL_BYTES, type TinyKernel } from './kernel.ts'
import { writeTurns } from './turns.ts'
import { layOutWeights, type WeightsLayout } from './weights.ts'

/**
 * Tokens that go through the layers together. A larger slice reads expert weights less often but needs more
 * memory.
 */
export const SLICE = 256

/** Byte offsets. */
export interface MemoryLayout {
  readonly weights: WeightsLayout
  /** [positions][cosines, sines] */
  readonly turns: number
  readonly hidden: number
  readonly normed: number
  /** [tokens][queries, keys, values] */
  readonly qkv: number
  readonly attended: number
  readonly projected: number
  readonly gates: number
  /** For the tokens of one expert. */
  readonly gathered: number
  readonly gateUp: number
  readonly inner: number
  readonly down: number
  readonly positions: number
  /** [tokens × topK], grouped by expert. */
  readonly which: number
  readonly factors: number
  readonly scores: number
  /** [sequences][positions]: address of each position’s KV in its layer. */
  readonly rows: number
  readonly rowsPerSequence: number
  readonly logits: number
  /**
   * [layers][planes][slots][head width]: keys of each head, then values of each. Attention reads one plane
   * after the other.
   */
  readonly kv: number
  /** Bytes per layer. */
  readonly kvPlanes: number
  readonly kvPlaneBytes: number
  /** Bytes per token in a plane. */
  readonly kvRowBytes: number
  readonly bytes: number
}

export function layOutMemory(config: TinyConfig, slots: number): MemoryLayout {
  const { hidden, heads, kvHeads, headWidth, experts, topK, expertWidth, vocabulary, positions } = config
  const weights = layOutWeights(config)
  let next = weights.bytes
  const take = (numbers: number) => {
    const at = next
    next += Math.ceil((4 * numbers) / 64) * 64
    return at
  }
  const padded = Math.ceil(positions / 4) * 4
  return {
    weights,
    turns: take(positions * headWidth),
    hidden: take(SLICE * hidden),
    normed: take(SLICE * hidden),
    qkv: take(SLICE * (heads + 2 * kvHeads) * headWidth),
    attended: take(SLICE * heads * headWidth),
    projected: take(SLICE * hidden),
    gates: take(SLICE * experts),
    gathered: take(SLICE * hidden),
    gateUp: take(SLICE * 2 * expertWidth),
    inner: take(SLICE * expertWidth),
    down: take(SLICE * hidden),
    positions: take(SLICE),
    which: take(SLICE * topK),
    factors: take(SLICE * topK),
    scores: take(2 * padded),
    rows: take(SLICE * padded),
    rowsPerSequence: padded,
    logits: take(SLICE * vocabulary),
    kv: take(config.layers * 2 * kvHeads * slots * headWidth),
    kvPlanes: 2 * kvHeads,
    kvPlaneBytes: 4 * slots * headWidth,
    kvRowBytes: 4 * headWidth,
    bytes: next,
  }
}

/** Creates a kernel whose memory holds the weights and tables. */
export function fillMemory(
  config: TinyConfig,
  layout: MemoryLayout,
  weights: Float32Array,
  create: (bytes: number) => TinyKernel,
): TinyKernel {
  const kernel = createOrSay(layout, create)
  const numbers = new Float32Array(kernel.buffer)
  numbers.set(weights)
  writeTurns(config, numbers, layout.turns / 4)
  return kernel
}

function createOrSay({ bytes }: MemoryLayout, create: (bytes: number) => TinyKernel): TinyKernel {
  const found = `${Math.ceil(bytes / 2 ** 20)} MiB of weights and KV blocks`
  const todo = 'Use fewer --blocks, or smaller ones.'
  if (bytes > MAX_KERNEL_BYTES)
    throw new EldrError('ELDR_USAGE', {
      found,
      expected: 'at most the 4,095 that WebAssembly can address',
      todo,
    })
  try {
    return create(bytes)
  } catch (cause) {
    throw new EldrError('ELDR_USAGE', { found, expected: 'less than the available memory', todo, cause })
  }
}
