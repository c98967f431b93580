/** A plan in words. */
import type { Plan, PolicyPlan } from '../sim/plan.ts'
import type { Limit, Probe } from '../sim/plan-probe.ts'
import type { Check, CheckKind } from '../sim/verdict.ts'
import { fixed, many, percent, whole } from './numbers.ts'

/** Three digits; the search is only precise to 1 %. */
export function threeDigits(value: number): string {
  return fixed(value, value >= 100 ? 0 : value >= 10 ? 1 : 2)
}

export const money = (value: number, digits = 2): string =>
  `${value < 0 ? '−' : ''}$${fixed(Math.abs(value), digits)}`

export function signedPercent(share: number): string {
  const shown = `${fixed(100 * share, 1)}\u00a0%`
  return share > 0 && /[1-9]/.test(shown) ? `+${shown}` : shown
}

/** `p99 TPOT ≤ 15 ms, p99 TTFT ≤ 500 ms` */
export function sloText({ slo }: Plan): string {
  return `p99 TPOT ≤ ${slo.tpotMs} ms${slo.ttftMs === undefined ? '' : `, p99 TTFT ≤ ${slo.ttftMs} ms`}`
}

const LIMITS: Readonly<Record<Limit, string>> = {
  tpot: 'TPOT',
  ttft: 'TTFT',
  prefill_rate: 'prefill falls behind',
  decode_rate: 'decode falls behind',
}

/** The limit that is exceeded above the highest rate, or at any rate. */
export function rateLimitText({ outcome, limits }: PolicyPlan['highest']): string {
  const text = limitText(limits)
  return outcome === 'never'
    ? `${text}, at any rate`
    : outcome === 'always'
      ? `${text}, by the profile`
      : text
}

/** The limit that is exceeded with one decode worker fewer, or with any number. */
export function workerLimitText(
  { value, limits }: NonNullable<PolicyPlan['fewest']>,
  { mostDecoders }: Plan,
): string {
  if (value !== null) return value === 1 ? '–' : limitText(limits)
  return limits.length === 0
    ? `more than ${whole(mostDecoders)} needed`
    : `${limitText(limits)}, with any number`
}

export const limitText = (limits: readonly Limit[]): string => limits.map(limit => LIMITS[limit]).join(', ')

/** The verdict of `eldr plan`: whether routing by experts pays, how much, and why. */
export function verdictInWords(plan: Plan): string {
  const { verdict } = plan
  const against = verdict.reasons.map(kind => reasonInWords(kind, plan))
  if (verdict.answer === 'out_of_reach') return outOfReach(plan)
  if (verdict.answer === 'pays')
    return [gainInWords(plan), whyInWords(plan), ...against.map(reason => `But ${lowerFirst(reason)}`)].join(
      ' ',
    )
  return [
    noGainInWords(plan),
    ...(against.length > 0 ? against : [whyInWords(plan), notFollowed(plan)]),
  ].join(' ')
}

function outOfReach(plan: Plan): string {
  const { probe } = resultOf(plan, plan.balancer).highest
  const alone = `even at ${threeDigits(probe.rate)} requests per second, where requests hardly overlap, ${brokenAt(probe, plan)}`
  const step = probe.limits.includes('tpot')
    ? ` In the profile a step with a single request takes ${fixed(plan.bounds.aloneMs, 2)} ms.`
    : ''
  return `No policy keeps this SLO at any rate: ${alone}.${step} Routing cannot fix that; a looser SLO or faster workers can.`
}

function brokenAt({ limits, tpotP99Ms, ttftP99Ms }: Probe, { slo }: Plan): string {
  if (limits.includes('tpot')) return `p99 TPOT is ${fixed(tpotP99Ms.mean, 2)} ms, above ${slo.tpotMs} ms`
  if (limits.includes('ttft')) return `p99 TTFT is ${fixed(ttftP99Ms!.mean, 0)} ms, above ${slo.ttftMs} ms`
  return `the queue grows (${limitText(limits)})`
}

function gainInWords(plan: Plan): string {
  const { policy, gain } = plan.verdict
  const [best, base] = [resultOf(plan, policy), resultOf(plan, plan.balancer)]
  const rate = `${threeDigits(best.highest.value!)} requests per second within the SLO`
  const than =
    gain === null
      ? `${plan.balancer}, the best load balancer, meets it at no rate`
      : `${comparedWith(gain, 0)} the ${threeDigits(base.highest.value!)} of ${plan.balancer}, the best load balancer`
  return `Routing by experts pays here: with ${policy}, ${plan.study.topology} serves ${rate}, ${than}.${savingInWords(plan, best)}`
}

/** `28 % more than` */
function comparedWith(gain: number, digits: number): string {
  if (Math.abs(gain) < SAME) return 'no more than'
  return `${percent(Math.abs(gain), digits)} ${gain > 0 ? 'more' : 'less'} than`
}

const SAME = 0.0005

function savingInWords(
  { rate, balancer, results, pricePerGpuHour, mostDecoders }: Plan,
  { fewest, variant }: PolicyPlan,
): string {
  if (rate === undefined || fewest === undefined) return ''
  const asked = `${threeDigits(rate)} requests per second`
  if (fewest.value === null)
    return ` Up to ${whole(mostDecoders)} decode workers are not enough for ${asked}.`
  const own = many(fewest.value, 'decode worker')
  if (fewest.gpusSaved === null) return ` For ${asked} it needs ${own}; with ${balancer} no number is enough.`
  if (fewest.gpusSaved <= 0)
    return ` For ${asked} that does not save a whole decode worker: ${variant} needs ${own} too.`
  const base = Math.min(
    ...results.filter(({ isBalancer }) => isBalancer).map(result => result.fewest?.value ?? Infinity),
  )
  return ` For ${asked} it needs ${own} instead of ${base}: ${many(fewest.gpusSaved, 'GPU')} fewer, ${money(fewest.savedPerYear!, 0)} per year at ${money(pricePerGpuHour)} per GPU hour.`
}

function noGainInWords(plan: Plan): string {
  const { policy, gain } = plan.verdict
  const base = resultOf(plan, plan.balancer).highest
  if (gain === null)
    return `Routing by experts does not pay here: ${plan.balancer} meets the SLO up to ${threeDigits(base.value!)} requests per second, no other policy at any rate.`
  const most = base.outcome === 'always' ? ', the limit of the workers' : ''
  return `Routing by experts does not pay here: the best policy, ${policy}, serves ${threeDigits(resultOf(plan, policy).highest.value!)} requests per second within the SLO, ${comparedWith(gain, 1)} ${plan.balancer}${most}.`
}

/** Why fewer experts do not give a higher rate. */
function notFollowed(plan: Plan): string {
  const isBatch = resultOf(plan, plan.verdict.policy).highest.limits.includes('decode_rate')
  return isBatch
    ? 'Batches have reached the limit of a worker, so the SLO is not the bottleneck.'
    : 'p99 does not improve: it depends on the slowest steps, not on the mean.'
}

/** What the policy changes at a rate that the best load balancer serves too. */
function whyInWords(plan: Plan): string {
  const { sameRate, balancer, verdict } = plan
  const activeOf = (name: string) =>
    sameRate.points.find(({ variant }) => variant === name)!.probe.activeExperts
  const [own, base] = [activeOf(verdict.policy), activeOf(balancer)]
  return `At ${threeDigits(sameRate.rate)} requests per second its steps activate ${fixed(own, 1)} experts per layer instead of ${fixed(base, 1)} (${signedPercent(own / base - 1)}), and experts take ${percent(checkOf(plan, 'other_costs').value)} of a step’s time.`
}

/** A failed condition as a sentence with its number. */
export function reasonInWords(kind: CheckKind, plan: Plan): string {
  const { value, threshold } = checkOf(plan, kind)
  const saved = Math.max(0, checkOf(plan, 'no_structure').value)
  const base = plan.sameRate.points.find(({ variant }) => variant === plan.balancer)!.probe
  const tailOf = (variant: string) => `${fixed(resultOf(plan, variant).highest.probe.tpotP99Ms.mean, 1)} ms`
  switch (kind) {
    case 'small_batches':
      return `The SLO allows batches of only ${fixed(value, 1)}: requests that run alone share no experts.`
    case 'every_expert_fires':
      return `Batches of ${whole(base.batch)} activate ${fixed(base.activeExperts, 1)} of ${plan.traffic.experts} experts (${percent(value)}), whatever their requests; the best policy activates ${percent(saved, 1)} fewer. Smaller batches, under a tighter SLO, would leave more to gain.`
    case 'no_structure':
      return `Requests are too alike: at the same rate the best policy activates ${percent(saved, 1)} fewer experts than ${plan.balancer}, in batches of ${fixed(base.batch, 1)}.`
    case 'weak_signature':
      return `The artifact’s signatures hardly predict decode: ρ is ${fixed(value, 3)}, below ${threshold}.`
    case 'other_costs':
      return `Active experts account for ${percent(value)} of a step’s time; routing does not change the rest.`
    case 'prefill_bound':
      return `Prefill is the bottleneck above ${threeDigits(value)} requests per second (${limitText(resultOf(plan, plan.verdict.policy).highest.limits)}): decode policies do not change that, more prefill workers would. At that rate p99 TPOT is ${tailOf(plan.verdict.policy)} with ${plan.verdict.policy} and ${tailOf(plan.balancer)} with ${plan.balancer}${plan.rate === undefined ? ': give --rate to see whether fewer decode workers are enough' : ''}.`
  }
}

/** A condition for a table: its value and what is required. */
export function checkCells(
  { kind, value, threshold, against }: Check,
  { traffic }: Plan,
): { what: string; found: string; required: string } {
  switch (kind) {
    case 'small_batches':
      return { what: 'requests per step', found: fixed(value, 1), required: `at least ${threshold}` }
    case 'every_expert_fires':
      return {
        what: `share of the ${traffic.experts} experts that are active`,
        found: percent(value),
        required: `below ${percent(threshold!)}, or fewer with some policy`,
      }
    case 'no_structure':
      return {
        what: 'fewer active with the best policy',
        found: percent(value, 1),
        required: `at least ${percent(threshold!)}`,
      }
    case 'weak_signature':
      return { what: 'ρ of the artifact', found: fixed(value, 3), required: `at least ${threshold}` }
    case 'other_costs':
      return {
        what: 'experts’ share of a step’s time',
        found: percent(value),
        required: `at least ${percent(threshold!)}`,
      }
    case 'prefill_bound':
      return { what: 'bottleneck', found: against ? 'prefill' : 'decode', required: 'decode' }
  }
}

/** Minimum measured time, in request durations. */
const STEADY = 3

/** Length of the runs, with a warning if they are too short for a steady state. */
export function spanInWords(plan: Plan): { readonly text: string; readonly isShort: boolean } {
  const probes = plan.results.map(({ highest }) => highest.probe)
  const lengths = (probe: Probe) => probe.spanSeconds / probe.requestSeconds
  const shortest = probes.reduce((a, b) => (lengths(b) < lengths(a) ? b : a))
  const isShort = lengths(shortest) < STEADY
  const measured = `At the highest rates a run of ${whole(shortest.requests)} requests is measured for ${threeDigits(shortest.spanSeconds)} s, ${threeDigits(lengths(shortest))} times the duration of a request.`
  const wanted = 1000 * Math.ceil((shortest.requests * STEADY) / lengths(shortest) / 1000)
  return {
    isShort,
    text: isShort
      ? `${measured} That is too short for a steady state: the rates are too high by an unknown amount. Give --requests ${wanted} or more.`
      : measured,
  }
}

export function resultOf({ results }: Plan, variant: string): PolicyPlan {
  return results.find(result => result.variant === variant)!
}

function checkOf({ verdict }: Plan, kind: CheckKind): Check {
  return verdict.checks.find(check => check.kind === kind)!
}

const lowerFirst = (text: string): string => text.slice(0, 1).toLowerCase() + text.slice(1)
