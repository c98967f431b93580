/**
 * Requests in order of arrival: when each arrives, which recorded request it replays, how long it is, and
 * which text it shares with others.
 */
import type { Random } from '../math/random.ts'
import { type ArrivalSpec, createArrivals } from './arrivals.ts'
import { createMixDraw, type Mix, type TimedRowDraw } from './mix-draw.ts'
import type { RecordedWorkload } from './recorded-workload.ts'
import type { Replay } from './replay.ts'
import type { RequestPool } from './requests.ts'
import { createRowDraw, type DrawMode } from './row-draw.ts'

export interface WorkloadSpec {
  readonly arrivals: ArrivalSpec
  /** How recorded requests are drawn (default: in shuffled passes). */
  readonly rows?: DrawMode
  /** A mix of domains that changes over time, instead of `rows`. */
  readonly mix?: Mix
  /**
   * Prompt and output lengths, and shared prefixes, of a recorded workload, request by request, instead of
   * the trace's own. Without it a request has its row's lengths and its row's prompt: it shares text only
   * with another request of the same row.
   */
  readonly lengths?: RecordedWorkload
}

export interface Workload {
  /** Time of the next arrival; Infinity if there is none. Call once per request. */
  nextArrivalUs(): number
  /** Fills a slot with the request of the last arrival. */
  assign(pool: RequestPool, slot: number): void
  release(row: number): void
}

/** `blockTokens`: length of the prompt blocks that row prefixes are cut into; 0 if they are not used. */
export function createWorkload(
  spec: WorkloadSpec,
  replay: Pick<Replay, 'rows' | 'steps' | 'promptTokens'>,
  blockTokens: number,
  random: Random,
): Workload {
  const { lengths } = spec
  const arrivals = createArrivals(spec.arrivals, random.fork(1))
  const rows: TimedRowDraw =
    spec.mix === undefined
      ? createRowDraw(spec.rows ?? 'passes', replay.rows, random.fork(2))
      : createMixDraw(spec.mix, random.fork(2))
  const rowBlocks: (Float64Array | undefined)[] = []
  let index = 0
  let arrivalUs = 0

  /** Ids of a row's blocks; made when it is first drawn. 2^20 blocks are more than any prompt has. */
  function blocksOfRow(row: number): ArrayLike<number> {
    if (blockTokens === 0) return []
    const count = Math.floor(replay.promptTokens[row]! / blockTokens)
    return (rowBlocks[row] ??= Float64Array.from({ length: count }, (_, block) => row * 2 ** 20 + block))
  }

  function blocksOfRequest({ prefixes }: RecordedWorkload): ArrayLike<number> {
    if (blockTokens === 0 || prefixes === undefined) return []
    return prefixes.ids.subarray(prefixes.starts[index], prefixes.starts[index + 1])
  }

  function promptBlocks(blocks: ArrayLike<number>, { promptTokens }: RequestPool, slot: number): Int32Array {
    return (blocks as Int32Array).subarray(0, Math.floor(promptTokens[slot]! / blockTokens))
  }

  return {
    nextArrivalUs: () =>
      lengths !== undefined && index >= lengths.promptTokens.length ? Infinity : (arrivalUs = arrivals()),
    assign(pool, slot) {
      const row = rows.take(arrivalUs)
      pool.index[slot] = index
      pool.row[slot] = row
      pool.promptTokens[slot] = lengths?.promptTokens[index] ?? replay.promptTokens[row]!
      pool.decodeTokens[slot] = lengths === undefined ? replay.steps[row]! : lengths.outputTokens[index]! - 1
      const blocks = lengths === undefined ? blocksOfRow(row) : blocksOfRequest(lengths)
      pool.contextBlocks[slot] = blocks
      pool.blocks[slot] = lengths?.conversations === undefined ? blocks : promptBlocks(blocks, pool, slot)
      pool.conversation[slot] = lengths?.conversations?.[index] ?? -1
      index++
    },
    release: row => rows.release(row),
  }
}

/** 32 bits of the leading blocks, as a router would hash them; undefined if there are none. */
export function prefixKeyOf(blocks: ArrayLike<number>, max: number): number | undefined {
  if (blocks.length === 0) return undefined
  let key = 0x811c9dc5
  for (let i = 0; i < Math.min(max, blocks.length); i++) {
    const id = blocks[i]!
    key = Math.imul(key ^ (id | 0), 0x01000193)
    key = Math.imul(key ^ Math.floor(id / 2 ** 32), 0x01000193) // ids of rows exceed 32 bits
  }
  return key >>> 0
}
