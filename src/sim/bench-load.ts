/**
 * The load of an `eldr bench --prompts FILE --rate R` run, request by request: the same arrival times (those
 * of the seed), the same recorded requests, the same lengths and the same counted part, so that a served run
 * can be predicted.
 */
import { EldrError } from '../errors.ts'
import { createRandom } from '../math/random.ts'
import { type Arrivals, type ArrivalSpec, createArrivals } from './arrivals.ts'
import type { Replay } from './replay.ts'
import type { MeasuredPart } from './simulate.ts'
import type { WorkloadSpec } from './workload.ts'

/** Plain data: it is sent to threads. */
export interface BenchLoad {
  /** One list of prompts per seed, from `firstSeed` on; the lists start over after the last. */
  readonly prompts: readonly PromptList[]
  readonly firstSeed: number
  /** Requests sent in the first seconds do not count; those of the following seconds do. */
  readonly warmUpSeconds: number
  readonly seconds: number
}

/** Starts over after the last prompt, as in `eldr bench`. */
export interface PromptList {
  readonly file: string
  /** [prompts] request of the trace. */
  readonly requests: Int32Array
  /** [prompts] tokens that the decode worker generates: all of them, since it samples the first one again. */
  readonly outputTokens: Int32Array
}

export interface BenchRun {
  readonly workload: WorkloadSpec
  readonly requests: number
  readonly measured: MeasuredPart
}

/** Random stream of arrivals: that of the simulator, so that both have the same times. */
const ARRIVALS = 1

/** When `eldr bench` sends its requests. */
export function benchArrivals(spec: ArrivalSpec, seed: number): Arrivals {
  return createArrivals(spec, createRandom(seed).fork(ARRIVALS))
}

export function benchRun(load: BenchLoad, arrivals: ArrivalSpec, replay: Replay, seed: number): BenchRun {
  const list = load.prompts[(seed - load.firstSeed) % load.prompts.length]!
  const next = benchArrivals(arrivals, seed)
  const [warmUpUs, endUs] = [load.warmUpSeconds * 1e6, (load.warmUpSeconds + load.seconds) * 1e6]
  const times: number[] = []
  for (let timeUs = next(); timeUs <= endUs; timeUs = next()) times.push(timeUs)
  const first = times.filter(timeUs => timeUs < warmUpUs).length
  const counted = times.length - first
  if (counted < 1)
    throw new EldrError('ELDR_USAGE', {
      found: `no request in ${load.seconds} s`,
      expected: 'at least one',
      todo: 'Use a longer --duration or a higher rate.',
    })
  const rowOf = new Map(Array.from(replay.requestOf, (request, row) => [request, row]))
  const rows = list.requests.map(request => rowOf.get(request) ?? missing(list.file, request))
  const at = (values: Int32Array) => Int32Array.from(times, (_, i) => values[i % values.length]!)
  const timesUs = Float64Array.from(times)
  return {
    // The times of the seed's arrivals, which the simulator draws again.
    workload: {
      arrivals,
      rows,
      lengths: {
        source: list.file,
        timesUs,
        promptTokens: at(rows.map(row => replay.promptTokens[row]!)),
        // A workload counts prefill's token too.
        outputTokens: at(list.outputTokens).map(tokens => tokens + 1),
      },
    },
    requests: times.length,
    measured: { first, end: times.length, untilUs: endUs },
  }
}

function missing(file: string, request: number): never {
  throw new EldrError('ELDR_USAGE', {
    found: `a prompt of ${file} that is request ${request} of the trace, which has no decode step`,
    expected: 'a trace with decode steps for every prompt',
    todo: 'Record the trace again, with eldr calibrate --steps.',
  })
}
