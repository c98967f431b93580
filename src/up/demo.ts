/**
 * The same load on a live cluster under one policy after the other: same requests, same moments, caches cleared in between. What was
 * measured stands beside what the simulator says of the same load, and every answer is held against those of the first policy.
 */
import { EldrError } from '../errors.ts'
import type { Exchange } from '../load/exchange.ts'
import type { Figures } from '../load/figures.ts'
import type { Cluster } from '../load/gateway-cluster.ts'
import type { LoadProgress } from '../load/run-load.ts'
import { type LiveSettings, runLive, type SharedWorkload } from '../load/sweep.ts'
import type { SimulationResult } from '../sim/result.ts'
import { measuredRequests } from '../sim/simulate.ts'
import type { Observation } from './observe.ts'

export interface DemoLoad {
  readonly policies: readonly string[]
  /** Requests a second of the model's time, which runs `speed` times as fast as the clock. */
  readonly rate: number
  readonly speed: number
  readonly shared: SharedWorkload
  readonly live: Omit<LiveSettings, 'onProgress' | 'hashText'>
}

export interface DemoRun {
  readonly policy: string
  /** Times by the clock. */
  readonly figures: Figures
  /** Times of the model. */
  readonly tpotMs: { readonly p50: number; readonly p99: number }
  /** Of the time in which the requests that count arrived; a token's mean. NaN where a worker was lost meanwhile. */
  readonly activeExperts: number
  readonly batch: number
  /** How much longer decode steps took than the profile says: 0.1 is a tenth. */
  readonly late: number
  readonly outputs: Outputs
  readonly simulated: SimulationResult
}

/** By the number of the request: a hash of its text and how many tokens it has; a failed one has none that could be the same. */
export type Outputs = ReadonlyMap<number, string>

export interface DemoWatch {
  began(policy: string): void
  progress(now: LoadProgress): void
  ended(run: DemoRun): void
}

export async function runDemo(
  cluster: Cluster,
  look: () => Promise<Observation>,
  load: DemoLoad,
  simulated: readonly SimulationResult[],
  watch: DemoWatch,
): Promise<DemoRun[]> {
  const { policies, rate, speed, shared, live } = load
  const stretched = { ...shared, timesUs: shared.timesUs.map(us => us / speed) }
  const runs: DemoRun[] = []
  for (const [at, policy] of policies.entries()) {
    watch.began(policy)
    const counted = countedPart(stretched, look)
    const onProgress = (now: LoadProgress) => {
      counted.at(now.seconds)
      watch.progress(now)
    }
    const { figures, exchanges } = await runLive(cluster, { policy, rate }, stretched, {
      ...live,
      hashText: true,
      onProgress,
    })
    const { p50, p99 } = figures.tpotMs
    const run = {
      policy,
      figures,
      tpotMs: { p50: p50 * speed, p99: p99 * speed },
      ...(await counted.steps()),
      outputs: outputsOf(exchanges),
      simulated: simulated[at]!,
    }
    runs.push(run)
    watch.ended(run)
  }
  return runs
}

/** Looks at the workers when the first request that counts is due and when the last one is: what lies between is theirs. */
function countedPart({ timesUs }: SharedWorkload, look: () => Promise<Observation>) {
  const { first, end } = measuredRequests(timesUs.length)
  const dues = [timesUs[first]!, timesUs[Math.min(end, timesUs.length - 1)]!]
  const looks: Promise<Observation>[] = []
  return {
    at(seconds: number): void {
      if (looks.length < dues.length && seconds * 1e6 >= dues[looks.length]!) looks.push(look())
    },
    async steps(): Promise<StepsBetween> {
      const [from, to] = await Promise.all([looks[0] ?? look(), looks[1] ?? look()])
      return stepsBetween(from, to)
    },
  }
}

type StepsBetween = Pick<DemoRun, 'activeExperts' | 'batch' | 'late'>

/** A token's mean over all decode workers. */
function stepsBetween(from: Observation, to: Observation): StepsBetween {
  let [tokens, active, steps, takenMs, modelledMs, restarted] = [0, 0, 0, 0, 0, false]
  for (const [at, { role, pid, own }] of to.workers.entries()) {
    const before = from.workers[at]!
    if (role !== 'decode') continue
    restarted ||= own === undefined || before.own === undefined || pid !== before.pid
    tokens += (own?.stats.decodeTokens ?? 0) - (before.own?.stats.decodeTokens ?? 0)
    active += (own?.stats.activeTokens ?? 0) - (before.own?.stats.activeTokens ?? 0)
    steps += (own?.stats.decodeSteps ?? 0) - (before.own?.stats.decodeSteps ?? 0)
    takenMs += (own?.stats.timing.takenMs ?? 0) - (before.own?.stats.timing.takenMs ?? 0)
    modelledMs += (own?.stats.timing.modelledMs ?? 0) - (before.own?.stats.timing.modelledMs ?? 0)
  }
  if (restarted || tokens === 0) return { activeExperts: NaN, batch: NaN, late: NaN }
  return { activeExperts: active / tokens, batch: tokens / steps, late: takenMs / modelledMs - 1 }
}

export function outputsOf(exchanges: readonly Exchange[]): Outputs {
  return new Map(
    exchanges.map(({ index, failure, textHash, usage, events }) => [
      index,
      failure === undefined ? `${textHash} ${usage?.completionTokens ?? events}` : `${failure.kind} ${index}`,
    ]),
  )
}

/** An output of a request that was answered: its hash. */
const ANSWERED = /^[0-9a-f]{64} /

/** Numbers of the requests that were not answered, or not with the same bytes as in the other run. */
export function differing(a: Outputs, b: Outputs): number[] {
  const same = (index: number) => a.get(index) === b.get(index) && ANSWERED.test(a.get(index) ?? '')
  return [...new Set([...a.keys(), ...b.keys()])].filter(index => !same(index)).toSorted((x, y) => x - y)
}

/** Routing must not change what is answered. A request that failed says nothing of that, and is another matter. */
export function checkSame(runs: readonly Pick<DemoRun, 'policy' | 'outputs'>[]): void {
  for (const { policy, outputs } of runs) {
    const failed = [...outputs].filter(([, output]) => !ANSWERED.test(output))
    if (failed.length === 0) continue
    const found = `${failed.length} of ${outputs.size} requests failed under ${policy} (the first: ${failed[0]![0]}, ${failed[0]![1].split(' ')[0]})`
    throw new EldrError('ELDR_CLUSTER_FAILED', {
      found,
      expected: 'every request answered',
      todo: 'If a worker ended meanwhile, run it again.',
    })
  }
  for (const { policy, outputs } of runs) {
    const different = differing(runs[0]!.outputs, outputs)
    if (different.length === 0) continue
    const found = `${different.length} of ${outputs.size} requests under ${policy} (the first: ${different[0]})`
    throw new EldrError('ELDR_OUTPUTS_DIFFER', { found, expected: `the bytes that ${runs[0]!.policy} gave` })
  }
}
