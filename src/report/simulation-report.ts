/** The report of `eldr simulate --report`, as exhibits. */
import { LOAD_BALANCERS } from '../sim/compare.ts'
import { prefillPolicyOf } from '../sim/study.ts'
import { gpusOf, parseTopology } from '../sim/topology.ts'
import type { ExhibitReport } from './exhibit.ts'
import { clipped, many, whole } from './numbers.ts'
import { bestGainInWords } from './simulation-charts.ts'
import {
  expertExhibit,
  gainExhibit,
  numberExhibit,
  rateExhibit,
  reasonExhibit,
} from './simulation-exhibits.ts'
import {
  costMeasure,
  GOODPUT,
  IMBALANCE,
  ratesOf,
  rateText,
  TOKENS,
  TPOT,
  TTFT,
  variantsOf,
} from './simulation-measures.ts'
import type { Simulated } from './simulation-tables.ts'

export interface HashedFile {
  readonly file: string
  readonly sha256: string
}

interface Shape {
  readonly layers: number
  readonly experts: number
  readonly topK: number
}

/** What the numbers rest on. */
export interface SimulationSources {
  readonly trace: HashedFile & { readonly model: string; readonly shape: Shape }
  readonly artifact?: HashedFile
  readonly workload?: HashedFile
  readonly profile: { readonly name: string; readonly what: string; readonly shape: Shape }
}

export function simulationReport(
  simulated: Simulated,
  sources: SimulationSources,
  version: string,
): ExhibitReport {
  const { points, study, seeds, pricePerGpuHour } = simulated
  const rates = ratesOf(points)
  const atRates =
    rates.length === 1 ? rateText(rates[0]!) : `${rateText(rates[0]!)} to ${rateText(rates.at(-1)!)}`
  const requests = points[0]?.runs[0]?.allRequests ?? study.requests
  const source = `Simulated: ${study.topology}, profile ${sources.profile.name}, trace ${nameOf(sources.trace)}, ${many(seeds, 'seed')} of ${many(requests, 'request')}.`
  const found = bestGainInWords(points, TPOT.p50)
  return {
    title: `${variantsOf(points).join(', ')} on ${study.topology} at ${atRates} requests a second`,
    intro: `What each policy would give, on the recorded experts of ${clipped(sources.trace.model, 80)} and the step times of ${sources.profile.name}.${found === undefined ? '' : ` ${found}`}`,
    facts: [
      ...filesOf(simulated, sources),
      { term: 'topology', value: topologyWords(simulated) },
      { term: 'requests', value: `${whole(requests)} a run, rows drawn by ${study.rows}` },
      {
        term: 'arrivals',
        value: study.workload === undefined ? study.arrivals : 'recorded, stretched to each rate',
      },
      { term: 'seeds', value: String(seeds) },
      ...sloFact(simulated),
      { term: 'price of a GPU-hour', value: `$${pricePerGpuHour}` },
      { term: 'simulated by', value: `eldr ${version}` },
    ],
    sections: sectionsOf(simulated, source),
    footer: `Every number on this page was computed by eldr ${version}; the same files, flags and seeds give the same page. Load balancers are ${LOAD_BALANCERS.join(', ')}: the best of those that were run is what others are compared with.`,
  }
}

function sectionsOf(simulated: Simulated, source: string): ExhibitReport['sections'] {
  const { points, study, seeds, pricePerGpuHour } = simulated
  const topology = parseTopology(study.topology)
  const drawn = `${source}${seeds > 1 ? ` ${ratesOf(points).length > 1 ? 'Bands' : 'Whiskers'} are 95 % confidence intervals over seeds.` : ''}`
  const gain = gainExhibit(simulated, source)
  const priced = `${drawn} ${many(gpusOf(topology), 'GPU')} at $${pricePerGpuHour} an hour, over the tokens that decode made.`
  const ttft: ExhibitReport['sections'][number] = {
    title: 'Time to first token',
    intro: 'From arrival to the token that prefill makes; the decode policy has its say after that.',
    exhibits: [rateExhibit(simulated, 'ttft', 'TTFT', [TTFT.p50, TTFT.p99], drawn)],
  }
  return [
    {
      title: 'Time per output token',
      intro: 'From the first token that decode makes to the last, over the tokens between them.',
      exhibits: [
        rateExhibit(simulated, 'tpot-p50', 'TPOT of the median request', [TPOT.p50], drawn),
        rateExhibit(simulated, 'tpot-p99', 'TPOT that one request in a hundred exceeds', [TPOT.p99], drawn),
        ...(gain === undefined ? [] : [gain]),
      ],
    },
    {
      title: 'Why',
      intro:
        'A step takes longer the more distinct experts its batch fires; a policy that gathers requests with the same experts pays for it with uneven load.',
      exhibits: [
        expertExhibit(simulated, source),
        rateExhibit(simulated, 'imbalance', 'Load of the fullest worker', [IMBALANCE], `${drawn} 1 is even.`),
        reasonExhibit(simulated, source),
      ],
    },
    ...(topology.prefill === 0 ? [] : [ttft]),
    {
      title: study.slo === undefined ? 'Throughput and cost' : 'Goodput and cost',
      exhibits: [
        study.slo === undefined
          ? rateExhibit(simulated, 'tokens', 'Tokens a second', [TOKENS], drawn, 'most')
          : rateExhibit(simulated, 'goodput', 'Requests that kept the SLO', [GOODPUT], drawn, 'most'),
        rateExhibit(
          simulated,
          'cost',
          'Cost of a million output tokens',
          [costMeasure(pricePerGpuHour)],
          priced,
        ),
      ],
    },
    { title: 'Numbers', exhibits: [numberExhibit(simulated, source)] },
  ]
}

const nameOf = ({ file }: HashedFile): string =>
  clipped(file.split(/[/\\]/).findLast(part => part !== '') ?? file, 60)
const shapeOf = ({ layers, experts, topK }: Shape): string =>
  `${many(layers, 'layer')} × ${many(experts, 'expert')}, top-${topK}`

function filesOf(
  { study }: Simulated,
  { trace, artifact, workload, profile }: SimulationSources,
): ExhibitReport['facts'] {
  const hashed = ({ file, sha256 }: HashedFile) => `${clipped(file, 200)} (sha256 ${sha256.slice(0, 16)}…)`
  const { promptTokens, outputTokens } = study.workload ?? {}
  const caps = [
    ...(promptTokens === undefined ? [] : [`prompts cut at ${many(promptTokens, 'token')}`]),
    ...(outputTokens === undefined ? [] : [`outputs at ${many(outputTokens, 'token')}`]),
  ]
  const laid =
    shapeOf(trace.shape) === shapeOf(profile.shape)
      ? ''
      : `, laid over the profile’s ${shapeOf(profile.shape)}`
  return [
    { term: 'trace', value: hashed(trace) },
    { term: 'model', value: `${trace.model}: ${shapeOf(trace.shape)}${laid}` },
    ...(artifact === undefined ? [] : [{ term: 'artifact', value: hashed(artifact) }]),
    ...(workload === undefined ? [] : [{ term: 'workload', value: [hashed(workload), ...caps].join(', ') }]),
    { term: 'cost profile', value: `${profile.name}: ${profile.what}` },
  ]
}

function topologyWords({ study }: Simulated): string {
  const topology = parseTopology(study.topology)
  const { prefixCacheTokens = 0 } = study
  const prefillPolicy = prefillPolicyOf(study)
  return [
    `${study.topology}, ${many(gpusOf(topology), 'GPU')}`,
    ...(topology.ranks > 1 ? [`experts placed ${study.placement ?? 'linear'}`] : []),
    ...(topology.prefill > 0 ? [`prefill by ${prefillPolicy}`] : []),
    ...(prefixCacheTokens > 0 ? [`${many(prefixCacheTokens, 'token')} of prefix cache each`] : []),
  ].join(', ')
}

function sloFact({ study: { slo } }: Simulated): ExhibitReport['facts'] {
  if (slo === undefined) return []
  const parts = [
    ...(slo.ttftMs === undefined ? [] : [`TTFT ≤ ${slo.ttftMs} ms`]),
    ...(slo.tpotMs === undefined ? [] : [`TPOT ≤ ${slo.tpotMs} ms`]),
  ]
  return [{ term: 'SLO', value: parts.join(', ') }]
}
