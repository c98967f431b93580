/**
 * Bursty arrivals: gamma gaps and, where given, recorded arrivals. Are band and union ever worse than jsq?
 */
import type { Exhibit, ExhibitTable } from '../report/exhibit.ts'
import { whole } from '../report/numbers.ts'
import { changeAgainst, over } from '../sim/sweep.ts'
import {
  batchOf,
  cellsOf,
  type Point,
  type Setting,
  type Simulated,
  tpotP50,
  tpotP99,
  ttftP99,
} from './cells.ts'
import { type Context, simulatedFrom } from './context.ts'
import { bursty, FEW_BATCHES, type Load, recorded, TOPOLOGY } from './loads.ts'
import type { RecordedSource } from './recorded.ts'
import { fixed } from './rounded.ts'
import { change, mean, number, outOf, shortHash, span } from './words.ts'

const POLICIES = ['jsq', 'band', 'union'] as const
/** Allowed loss of union against jsq at the tail. */
const TARGET = 0.02
const SAME_TTFT =
  'TTFT is the same under every decode policy by construction: in the simulator it ends with prefill, and prefill does not wait for decode.'

interface Burst {
  readonly label: string
  readonly batch: number
  readonly points: readonly Point[]
}

/** The recorded files replay the experts of the task mix. */
export function burstLoads({
  workloads,
  recorded: sources,
}: Pick<Context, 'workloads' | 'recorded'>): Load[] {
  const gamma = workloads.map(workload => ({
    setting: bursty(workload),
    decodeSteps: workload.evaluation.decodeSteps,
  }))
  const files = sources.map(source => ({
    setting: settingOf(source, workloads[0]),
    decodeSteps: source.outputTokens - 1,
  }))
  return [...gamma, ...files].flatMap(load => FEW_BATCHES.map(batch => ({ ...load, batch })))
}

const settingOf = ({ file, topology }: RecordedSource, task: Context['workloads'][0]): Setting =>
  recorded(task, file, topology)

export function bursts(context: Context): Simulated<Exhibit> {
  const { workloads, recorded: sources, rateOf } = context
  const kinds = [
    ...workloads.map(workload => ({ label: `gamma, ${workload.workload}`, setting: bursty(workload) })),
    ...sources.map(source => ({
      label: source.name.replace(/\.\w+$/, ''),
      setting: settingOf(source, workloads[0]),
    })),
  ]
  const loads = kinds.flatMap(({ label, setting }) =>
    FEW_BATCHES.map(batch => ({ label, batch, cells: cellsOf(POLICIES, rateOf(setting, batch), setting) })),
  )
  return {
    cells: loads.flatMap(({ cells }) => cells),
    make: of =>
      exhibit(
        context,
        loads.map(({ label, batch, cells }) => ({ label, batch, points: cells.map(of) })),
      ),
  }
}

function exhibit(context: Context, bursts: readonly Burst[]): Exhibit {
  const { workloads, recorded: sources } = context
  const against = ({ points }: Burst, at: number, value: typeof tpotP50) =>
    changeAgainst(points[0]!, points[at]!, value)
  const tails = (at: number, value: typeof tpotP50) => bursts.map(burst => against(burst, at, value).mean)
  const worst = (burst: Burst) => Math.max(against(burst, 2, tpotP99).mean, against(burst, 2, ttftP99).mean)
  const missed = bursts.filter(burst => worst(burst) > TARGET)
  return {
    id: 'bursts',
    title: 'Bursts: tail against jsq',
    finding: `Against jsq, p99 TPOT changes by ${span(tails(2, tpotP99))} with union and by ${span(tails(1, tpotP99))} with band. union meets its target, a p99 at most ${fixed(100 * TARGET, 0)} % above jsq’s, in ${outOf(bursts.length - missed.length, bursts.length)} cases${missed.length > 0 ? ` (missed: ${missed.map(({ label, batch }) => `${label} at ${batch}`).join(', ')})` : ''}.${sources.length === 0 ? ' No recorded arrivals were given (--workloads).' : ''}`,
    notes: [SAME_TTFT],
    source: `${simulatedFrom(context, workloads, { topology: sources.length > 0 ? `${TOPOLOGY} (more prefill workers for recorded arrivals)` : TOPOLOGY, arrivals: sources.length > 0 ? 'gamma (shape 0.25) or recorded' : 'gamma (shape 0.25)', replacement: true })} ${sources.length > 0 ? 'Recorded requests keep their prompt and output lengths and replay the experts of the task mix.' : ''}`,
    tables: [
      burstTable(bursts, against),
      ...(sources.length > 0 ? [sourceTable(sources, context.requests)] : []),
    ],
    charts: [],
  }
}

type Against = (burst: Burst, at: number, value: typeof tpotP50) => ReturnType<typeof changeAgainst>

function burstTable(bursts: readonly Burst[], against: Against): ExhibitTable {
  return {
    title: 'Against jsq',
    columns: [
      'arrivals, target batch',
      'requests per second',
      'batch under jsq',
      'jsq p99 TPOT',
      'band p50',
      'band p99',
      'union p50',
      'union p99',
      'jsq p99 TTFT',
      'union p99 TTFT',
    ],
    rows: bursts.map(burst => {
      const jsq = burst.points[0]!
      return [
        `${burst.label}, ${burst.batch}`,
        number(jsq.rate, jsq.rate < 10 ? 2 : 0),
        number(over(jsq, batchOf).mean, 1),
        mean(over(jsq, tpotP99), 1, 'ms'),
        change(against(burst, 1, tpotP50)),
        change(against(burst, 1, tpotP99)),
        change(against(burst, 2, tpotP50)),
        change(against(burst, 2, tpotP99)),
        number(over(jsq, ttftP99).mean, 0, 'ms'),
        change(against(burst, 2, ttftP99)),
      ]
    }),
  }
}

function sourceTable(sources: readonly RecordedSource[], used: number): ExhibitTable {
  const [{ file }] = sources as readonly [RecordedSource]
  return {
    title: `Recorded arrivals: the first ${whole(used)} requests, capped at ${whole(file.promptTokens)} prompt and ${whole(file.outputTokens)} output tokens`,
    columns: [
      'file',
      'sha256',
      'requests',
      'mean prompt',
      'mean output',
      'standard deviation of gaps / mean',
      'topology',
    ],
    rows: sources.map(({ name, sha256, requests, promptTokens, outputTokens, burstiness, topology }) => [
      name,
      shortHash(sha256),
      number(requests, 0),
      number(promptTokens, 0),
      number(outputTokens, 0),
      number(burstiness, 1),
      topology,
    ]),
  }
}
