/** From scenarios to runs: which artifact, traffic and cluster each run of a drift study has. Pure. */
import type { MixSpec } from '../mix-draw.ts'
import type { StudyData } from '../study.ts'
import { parseTopology } from '../topology.ts'
import type { ArtifactRecipe } from './artifacts.ts'
import type { Scenario } from './scenario.ts'

/** Requests to simulate, and the traces that artifacts are fitted on. */
export interface Traffic {
  readonly name: string
  readonly evaluation: string
  readonly calibration: string
  /** Calibration trace of other traffic; absent if no scenario needs it. */
  readonly foreign?: string
  /** Domains with a fair share of the requests, one of which bursts or is left out; see `largeDomains`. */
  readonly domains: readonly string[]
}

export interface DriftOptions {
  readonly scenarios: readonly Scenario[]
  readonly traffics: readonly Traffic[]
  readonly policies: readonly string[]
  /** Requests per second. */
  readonly rates: readonly number[]
  readonly seeds: readonly number[]
  /** Per run, if the scenario does not need a length of time. */
  readonly requests: number
  readonly profile: string
  readonly topology: string
  /** Default: one gateway. */
  readonly gateways?: StudyData['gateways']
}

/** One policy in one scenario, on one traffic, at one rate. */
export interface DriftCell {
  readonly scenario: Scenario
  readonly traffic: Traffic
  readonly rate: number
  readonly variant: string
}

/** Before a burst or a day; not measured. */
const WARM_UP_SECONDS = 10
/** After a burst, when its requests and the mix share the workers; measured. */
const AFTER_SECONDS = 15
/** At the end of the run; not measured. */
const COOL_DOWN_SECONDS = 5
/** Random artifacts of a kind that the seeds share: each costs a fit. */
const DRAWS = 3
/** Share of the requests that a domain needs to burst or to be left out. */
const LARGE = 0.05

export function cellsOf({ scenarios, traffics, policies, rates }: DriftOptions): DriftCell[] {
  return scenarios.flatMap(scenario =>
    traffics.flatMap(traffic =>
      rates.flatMap(rate => policies.map(variant => ({ scenario, traffic, rate, variant }))),
    ),
  )
}

/** Domains that have at least a twentieth of the requests in all traces, in order. */
export function largeDomains(
  traces: readonly { readonly domains: readonly string[]; readonly domainOf: ArrayLike<number> }[],
): string[] {
  const isLarge = (name: string) =>
    traces.every(({ domains, domainOf }) => {
      const index = domains.indexOf(name)
      return Array.from(domainOf).filter(of => of === index).length >= LARGE * domainOf.length
    })
  return (traces[0]?.domains ?? []).filter(isLarge)
}

export function recipeOf({ artifact }: Scenario, traffic: Traffic, seed: number): ArtifactRecipe {
  const { calibration } = traffic
  const draw = seed % DRAWS
  switch (artifact) {
    case 'own':
      return { calibration }
    case 'foreign':
      return { calibration: traffic.foreign! }
    case 'unseen':
      return { calibration, without: domainFor(traffic, seed) }
    case 'shuffled':
      return { calibration, shuffledBy: draw }
    case 'noise':
      return { calibration, noiseBy: draw }
    default:
      return { calibration, drawn: { what: artifact, seed: draw } }
  }
}

/** The data of one run, apart from the artifact. */
export function settingOf(
  { scenario, traffic, rate }: DriftCell,
  { requests, topology, gateways }: Pick<DriftOptions, 'requests' | 'topology' | 'gateways'>,
  seed: number,
): Partial<StudyData> {
  const { clustersPerWorker, burstSeconds, daySeconds, slowness } = scenario
  const { decode } = parseTopology(topology)
  const measuredSeconds = burstSeconds === undefined ? daySeconds : burstSeconds + AFTER_SECONDS
  return {
    trace: traffic.evaluation,
    gateways,
    clusters: clustersPerWorker && Math.max(1, Math.round(clustersPerWorker * decode)),
    slowDecoder: slowness === undefined ? undefined : { decoder: seed % decode, factor: slowness },
    mix: mixOf(scenario, domainFor(traffic, seed)),
    ...(measuredSeconds === undefined ? { requests } : timed(measuredSeconds, rate)),
  }
}

function mixOf({ burstSeconds, daySeconds }: Scenario, domain: string): MixSpec | undefined {
  if (daySeconds !== undefined) return { kind: 'rotation', daySeconds }
  if (burstSeconds === undefined) return undefined
  return {
    kind: 'burst',
    domain,
    fromSeconds: WARM_UP_SECONDS,
    toSeconds: WARM_UP_SECONDS + burstSeconds,
  }
}

/** Requests of a time at a rate, and which of them are measured. */
function timed(measuredSeconds: number, rate: number): Pick<StudyData, 'requests' | 'measured'> {
  const [first, end] = [WARM_UP_SECONDS, WARM_UP_SECONDS + measuredSeconds].map(seconds =>
    Math.round(seconds * rate),
  ) as [number, number]
  return { requests: end + Math.ceil(COOL_DOWN_SECONDS * rate), measured: { first, end } }
}

/** Another domain for each seed, so that the result does not depend on the choice of one. */
function domainFor({ domains }: Traffic, seed: number): string {
  return domains[seed % domains.length]!
}
