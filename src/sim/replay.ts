/**
 * An evaluation trace in memory, as bits: the experts of one decode step of one request are layers ×
 * ⌈experts/32⌉ words, so that the union of a batch is an OR and its size a bit count. Plain data in shared
 * memory, so that the threads of a sweep share it.
 */
import { EldrError } from '../errors.ts'
import type { Trace } from '../trace/trace.ts'

export interface Replay {
  readonly layers: number
  readonly experts: number
  /** Requests that can be replayed: those of the trace with at least one decode step. */
  readonly rows: number
  /** [rows] request of the trace. */
  readonly requestOf: Int32Array
  /** [rows] recorded decode steps. A longer output starts over. */
  readonly steps: Int32Array
  /** [rows] 1 if the trace does not record it. */
  readonly promptTokens: Int32Array
  /** ⌈experts/32⌉; expert e of a layer is bit e mod 32 of word ⌊e/32⌋. */
  readonly wordsPerLayer: number
  /** layers × wordsPerLayer. */
  readonly wordsPerStep: number
  /** [rows] where a row's first step begins in `words`. */
  readonly start: Int32Array
  /** [row][step][layer][word] */
  readonly words: Int32Array
}

export interface ReplayParts {
  readonly layers: number
  readonly experts: number
  readonly topK: number
  /** [requests][maxSteps][layers][topK] */
  readonly ids: Uint8Array | Uint16Array
  readonly maxSteps: number
  readonly steps: ArrayLike<number>
  readonly promptTokens?: ArrayLike<number>
}

/** Bytes of expert ids that are read at once. */
const CHUNK = 16 << 20

export async function loadReplay(trace: Trace): Promise<Replay> {
  trace.need('replay')
  const { layers, experts, topK, maxSteps, requests } = trace
  const replay = emptyReplay(layers, experts, await trace.decodeSteps(), await trace.promptTokens())
  if (replay.rows === 0) {
    const found = `no decode step in ${requests} requests`
    throw new EldrError('ELDR_TRACE_TOO_SMALL', {
      file: trace.path,
      found,
      todo: 'Record requests that generate more than one token.',
    })
  }
  const rowsAtOnce = Math.max(1, Math.floor(CHUNK / Math.max(1, maxSteps * layers * topK)))
  for (let from = 0; from < requests; from += rowsAtOnce) {
    const to = Math.min(requests, from + rowsAtOnce)
    fill(replay, await trace.decodeExpertIds(from, to), { from, to, maxSteps, topK })
  }
  return replay
}

/** From ids in memory: for tests and synthetic traces. */
export function replayOf({ layers, experts, topK, ids, maxSteps, steps, promptTokens }: ReplayParts): Replay {
  const replay = emptyReplay(layers, experts, steps, promptTokens)
  fill(replay, ids, { from: 0, to: steps.length, maxSteps, topK })
  return replay
}

function emptyReplay(
  layers: number,
  experts: number,
  steps: ArrayLike<number>,
  promptTokens?: ArrayLike<number>,
): Replay {
  const requestOf = Int32Array.from(
    Array.from(steps, (_, request) => request).filter(request => steps[request]! > 0),
  )
  const wordsPerLayer = Math.ceil(experts / 32)
  const wordsPerStep = layers * wordsPerLayer
  const start = new Int32Array(requestOf.length)
  let words = 0
  requestOf.forEach((request, row) => {
    start[row] = words
    words += steps[request]! * wordsPerStep
  })
  if (words >= 2 ** 31) throw new RangeError(`${words} words of experts, more than 2^31 can be addressed`)
  return {
    layers,
    experts,
    rows: requestOf.length,
    requestOf,
    steps: requestOf.map(request => steps[request]!),
    promptTokens: requestOf.map(request => Math.max(1, promptTokens?.[request] ?? 1)),
    wordsPerLayer,
    wordsPerStep,
    start,
    words: new Int32Array(new SharedArrayBuffer(4 * words)),
  }
}

/** `ids` are those of the trace's requests `from` up to `to`. */
function fill(
  replay: Replay,
  ids: Uint8Array | Uint16Array,
  { from, to, maxSteps, topK }: { from: number; to: number; maxSteps: number; topK: number },
): void {
  const { layers, rows, requestOf, steps, wordsPerLayer, start, words } = replay
  for (let row = 0; row < rows; row++) {
    const request = requestOf[row]!
    if (request < from || request >= to) continue
    let at = (request - from) * maxSteps * layers * topK
    for (let cell = 0; cell < steps[row]! * layers; cell++) {
      const base = start[row]! + cell * wordsPerLayer
      for (let choice = 0; choice < topK; choice++, at++)
        words[base + (ids[at]! >> 5)]! |= 1 << (ids[at]! & 31)
    }
  }
}
