/**
 * Runs the same load on a live cluster under one policy after the other: same requests, same times, caches
 * cleared in between. Results are compared with the simulator, and every response with that under the first
 * policy.
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
  /** Requests per second of profile time, which runs `speed` times as fast as the clock. */
  readonly rate: number
  readonly speed: number
  readonly shared: SharedWorkload
  readonly live: Omit<LiveSettings, 'onProgress' | 'hashText'>
}

export interface DemoRun {
  readonly policy: string
  /** In wall time. */
  readonly figures: Figures
  /** In profile time. */
  readonly tpotMs: { readonly p50: number; readonly p99: number }
  /** Mean over tokens while the counted requests arrived. NaN if a worker restarted meanwhile. */
  readonly activeExperts: number
  readonly batch: number
  /** How much longer decode steps took than in the profile: 0.1 is 10 %. */
  readonly late: number
  readonly outputs: Outputs
  readonly simulated: SimulationResult
}

/**
 * By request index: hash of the text and number of tokens. The value of a failed request never equals
 * another.
 */
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

/**
 * Observes the workers when the first and the last counted request are due, to measure the steps in between.
 */
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

/** Means over the tokens of all decode workers. */
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

/** Output of a successful request: begins with its hash. */
const SUCCEEDED = /^[0-9a-f]{64} /

/** Indices of requests that failed, or whose bytes differ between the runs. */
export function differing(a: Outputs, b: Outputs): number[] {
  const same = (index: number) => a.get(index) === b.get(index) && SUCCEEDED.test(a.get(index) ?? '')
  return [...new Set([...a.keys(), ...b.keys()])].filter(index => !same(index)).toSorted((x, y) => x - y)
}

/** Routing must not change responses. Failed requests are a different error. */
export function checkSame(runs: readonly Pick<DemoRun, 'policy' | 'outputs'>[]): void {
  for (const { policy, outputs } of runs) {
    const failed = [...outputs].filter(([, output]) => !SUCCEEDED.test(output))
    if (failed.length === 0) continue
    const found = `${failed.length} of ${outputs.size} requests failed under ${policy} (first: request ${failed[0]![0]}, ${failed[0]![1].split(' ')[0]})`
    throw new EldrError('ELDR_CLUSTER_FAILED', {
      found,
      expected: 'no failed requests',
      todo: 'If a worker restarted during the run, run the command again.',
    })
  }
  for (const { policy, outputs } of runs) {
    const different = differing(runs[0]!.outputs, outputs)
    if (different.length === 0) continue
    const found = `${different.length} of ${outputs.size} requests under ${policy} (first: request ${different[0]})`
    throw new EldrError('ELDR_OUTPUTS_DIFFER', {
      found,
      expected: `the same bytes as under ${runs[0]!.policy}`,
    })
  }
}
