/** The report of `eldr plan --report`, as exhibits. */
import type { Plan, PolicyPlan } from '../sim/plan.ts'
import { RATE_TOLERANCE } from '../sim/plan-search.ts'
import type { Probe } from '../sim/plan-probe.ts'
import type { Cell, Exhibit, ExhibitChart, ExhibitNumber, ExhibitReport } from './exhibit.ts'
import { clipped, many, percent, whole } from './numbers.ts'
import {
  checkCells,
  money,
  rateLimitText,
  reasonInWords,
  resultOf,
  sloText,
  spanInWords,
  threeDigits,
  verdictInWords,
  workerLimitText,
} from './plan-words.ts'
import type { HashedFile, SimulationSources } from './simulation-report.ts'

export function planReport(plan: Plan, sources: SimulationSources, version: string): ExhibitReport {
  const { study, seeds, rate, results } = plan
  const source = `Simulated: ${study.topology}, profile ${clipped(sources.profile.name, 60)}, trace ${nameOf(sources.trace)}, ${study.arrivals} arrivals, ${many(seeds, 'seed')}.`
  return {
    title: `What routing by experts buys on ${study.topology}`,
    intro: verdictInWords(plan),
    facts: [
      { term: 'trace', value: hashed(sources.trace) },
      ...(sources.artifact === undefined ? [] : [{ term: 'artifact', value: hashed(sources.artifact) }]),
      { term: 'cost profile', value: `${sources.profile.name}: ${sources.profile.what}` },
      { term: 'topology', value: `${study.topology}, ${many(plan.gpus, 'GPU')}` },
      { term: 'SLO', value: sloText(plan) },
      { term: 'requests', value: `${whole(study.requests)} a run or more, ${study.arrivals} arrivals` },
      { term: 'seeds', value: String(seeds) },
      {
        term: 'price of a GPU hour',
        value: `${money(plan.pricePerGpuHour)}, ${plan.isPriceGiven === true ? 'as given' : 'an example'}: no quote of ours`,
      },
      { term: 'simulated by', value: `eldr ${version}` },
    ],
    sections: [
      {
        title: 'Rate, GPUs, money',
        intro: spanInWords(plan).text,
        exhibits: [rateExhibit(plan, source), ...(rate === undefined ? [] : [decoderExhibit(plan, source)])],
      },
      { title: 'Does it apply here', exhibits: [checkExhibit(plan, source)] },
    ],
    footer: `Every number on this page was computed by eldr ${version}; the same files, flags and seeds give the same page. Policies run: ${results.map(({ variant }) => variant).join(', ')}. Gains are against the best load balancer among them.`,
  }
}

const nameOf = ({ file }: HashedFile): string =>
  clipped(file.split(/[/\\]/).findLast(part => part !== '') ?? file, 60)
const hashed = ({ file, sha256 }: HashedFile): string =>
  `${clipped(file, 200)} (sha256 ${sha256.slice(0, 16)}…)`

const number = (value: number | null, digits: number, unit?: string): Cell =>
  value === null ? null : { value, digits, ...(unit !== undefined && { unit }) }
const interval = ({ mean, half }: Probe['tpotP99Ms'], digits: number, unit: string): ExhibitNumber => ({
  value: mean,
  digits,
  unit,
  half,
})

function rateExhibit(plan: Plan, source: string): Exhibit {
  const { results, study, slo } = plan
  const held = results.filter(({ highest }) => highest.value !== null)
  const highest = (variant: string) => resultOf(plan, variant).highest
  const said = (variant: string) =>
    `${highest(variant).value === null ? 'no rate' : threeDigits(highest(variant).value!)} (${variant})`
  const bars = held.map(({ variant, highest }) => ({ label: variant, value: highest.value!, digits: 0 }))
  return {
    id: 'highest-rate',
    title: `Highest rate that ${study.topology} holds`,
    finding: `Requests a second within ${sloText(plan)}: ${results.map(({ variant }) => said(variant)).join(', ')}.`,
    source: `${source} A rate is the highest that was tried and held, to ${percent(RATE_TOLERANCE)}; p99 is a mean over seeds with its 95 % confidence interval. A million tokens are those that decode made.`,
    tables: [
      {
        columns: [
          'policy',
          'requests a second',
          'gain',
          'p99 TPOT',
          'p99 TTFT',
          'batch',
          'active experts',
          '$ for a million tokens',
          'above it breaks',
        ],
        rows: results.map(({ variant, highest }) => [
          variant,
          number(highest.value, 0),
          highest.gain === null ? null : { value: 100 * highest.gain, digits: 1, unit: '%', signed: true },
          interval(highest.probe.tpotP99Ms, 2, 'ms'),
          highest.probe.ttftP99Ms === null ? null : interval(highest.probe.ttftP99Ms, 1, 'ms'),
          number(highest.probe.batch, 1),
          number(highest.probe.activeExperts, 1),
          number(highest.costPerMillionTokens, 3),
          rateLimitText(highest),
        ]),
      },
    ],
    charts: [
      probeChart(
        plan,
        'The tail over the rate',
        'requests a second',
        probe => probe.rate,
        ({ probes }) => probes.filter(({ decoders }) => decoders === plan.results[0]!.highest.probe.decoders),
      ),
      ...(bars.length > 0
        ? [
            {
              kind: 'bars',
              title: `Highest rate with p99 TPOT at most ${slo.tpotMs} ms`,
              x: 'requests a second',
              groups: [{ bars }],
            } as const,
          ]
        : []),
    ],
  }
}

function decoderExhibit(plan: Plan, source: string): Exhibit {
  const rate = plan.rate!
  const found = plan.results.filter(({ fewest }) => fewest?.gpus !== null)
  const bars = found.map(({ variant, fewest }) => ({ label: variant, value: fewest!.gpus!, digits: 0 }))
  const said = ({ variant, fewest }: PolicyPlan) =>
    `${fewest!.value === null ? 'no number of them' : fewest!.value} (${variant})`
  return {
    id: 'fewest-decode-workers',
    title: `Fewest decode workers for ${threeDigits(rate)} requests a second`,
    finding: `Decode workers that hold ${threeDigits(rate)} requests a second within ${sloText(plan)}: ${plan.results.map(said).join(', ')}.`,
    source: `${source} Prefill workers as given; the artifact is re-fitted to each number of decode workers. Of each number found, the neighbour below was seen to fail.`,
    tables: [
      {
        columns: [
          'policy',
          'decode workers',
          'GPUs',
          'GPUs saved',
          '$ an hour',
          '$ saved a year',
          'with one less breaks',
        ],
        rows: plan.results.map(({ variant, fewest }) => [
          variant,
          number(fewest!.value, 0),
          number(fewest!.gpus, 0),
          number(fewest!.gpusSaved, 0),
          number(fewest!.costPerHour, 2),
          number(fewest!.savedPerYear, 0),
          workerLimitText(fewest!, plan),
        ]),
      },
    ],
    charts: [
      probeChart(
        plan,
        'The tail over decode workers',
        'decode workers',
        probe => probe.decoders,
        ({ probes }) => probes.filter(probe => probe.rate === rate),
      ),
      ...(bars.length > 0
        ? [{ kind: 'bars', title: 'GPUs, prefill included', x: 'GPUs', groups: [{ bars }] } as const]
        : []),
    ],
  }
}

function probeChart(
  { results, slo }: Plan,
  title: string,
  x: string,
  of: (probe: Probe) => number,
  probesOf: (result: PolicyPlan) => readonly Probe[],
): ExhibitChart {
  const point = (probe: Probe) => {
    const { mean, half } = probe.tpotP99Ms
    return { x: of(probe), y: mean, ...(Number.isFinite(half) && { low: mean - half, high: mean + half }) }
  }
  const series = results.map(result => ({
    label: result.variant,
    points: probesOf(result)
      .toSorted((a, b) => of(a) - of(b))
      .map(point),
  }))
  return {
    kind: 'lines',
    title,
    x,
    y: 'p99 TPOT (ms)',
    series,
    rules: [{ y: slo.tpotMs, label: `SLO ${slo.tpotMs} ms` }],
  }
}

function checkExhibit(plan: Plan, source: string): Exhibit {
  const { reasons, checks } = plan.verdict
  return {
    id: 'conditions',
    title: 'What routing by experts lives on',
    finding:
      reasons.length === 0
        ? 'All conditions are met.'
        : reasons.map(kind => reasonInWords(kind, plan)).join(' '),
    source: `${source} With ${plan.balancer}, the best load balancer that was run, at ${threeDigits(plan.sameRate.rate)} requests a second.`,
    tables: [
      {
        columns: ['condition', 'found', 'wanted', 'met'],
        rows: checks.map(check => {
          const { what, found, wanted } = checkCells(check, plan)
          return [what, found, wanted, check.against ? 'no' : 'yes']
        }),
      },
    ],
    charts: [],
  }
}
