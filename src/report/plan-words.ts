/** A plan in words. Whatever is said here follows from the plan alone. */
import type { Plan, PolicyPlan } from '../sim/plan.ts'
import type { Limit, Probe } from '../sim/plan-probe.ts'
import type { Check, CheckKind } from '../sim/verdict.ts'
import { fixed, many, percent, whole } from './numbers.ts'

/** Three digits: more than a search to 1 % knows. */
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

/** What breaks above the highest rate, or at any. */
export function rateLimitText({ outcome, limits }: PolicyPlan['highest']): string {
  const text = limitText(limits)
  return outcome === 'never'
    ? `${text}, at any rate`
    : outcome === 'always'
      ? `${text}, by the profile`
      : text
}

/** What breaks with one decode worker less than the fewest, or with any number of them. */
export function workerLimitText(
  { value, limits }: NonNullable<PolicyPlan['fewest']>,
  { mostDecoders }: Plan,
): string {
  if (value !== null) return value === 1 ? '–' : limitText(limits)
  return limits.length === 0
    ? `more than ${whole(mostDecoders)} would be needed`
    : `${limitText(limits)}, with any number`
}

export const limitText = (limits: readonly Limit[]): string => limits.map(limit => LIMITS[limit]).join(', ')

/** The plain words of `eldr plan`: does it pay, how much, and why or why not. */
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
  const alone = `even at ${threeDigits(probe.rate)} requests a second, where requests hardly meet, ${brokenAt(probe, plan)}`
  const step = probe.limits.includes('tpot')
    ? ` By the profile a step with a single request takes ${fixed(plan.bounds.aloneMs, 2)} ms.`
    : ''
  return `No policy keeps this SLO at any rate: ${alone}.${step} Routing cannot mend that; a looser SLO or a faster worker can.`
}

function brokenAt({ limits, tpotP99Ms, ttftP99Ms }: Probe, { slo }: Plan): string {
  if (limits.includes('tpot')) return `p99 TPOT is ${fixed(tpotP99Ms.mean, 2)} ms and not ${slo.tpotMs} ms`
  if (limits.includes('ttft')) return `p99 TTFT is ${fixed(ttftP99Ms!.mean, 0)} ms and not ${slo.ttftMs} ms`
  return `requests pile up (${limitText(limits)})`
}

function gainInWords(plan: Plan): string {
  const { policy, gain } = plan.verdict
  const [best, base] = [resultOf(plan, policy), resultOf(plan, plan.balancer)]
  const rate = `${threeDigits(best.highest.value!)} requests a second within the SLO`
  const than =
    gain === null
      ? `${plan.balancer}, the best load balancer that was run, keeps it at none`
      : `${comparedWith(gain, 0)} the ${threeDigits(base.highest.value!)} of ${plan.balancer}, the best load balancer that was run`
  return `Routing by experts pays here: with ${policy}, ${plan.study.topology} holds ${rate}, ${than}.${savingInWords(plan, best)}`
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
  const asked = `${threeDigits(rate)} requests a second`
  if (fewest.value === null)
    return ` No number of decode workers up to ${whole(mostDecoders)} holds ${asked}.`
  const own = many(fewest.value, 'decode worker')
  if (fewest.gpusSaved === null)
    return ` For ${asked} it takes ${own}; ${balancer} holds that with no number of them.`
  if (fewest.gpusSaved <= 0)
    return ` For ${asked} that is not enough to do without a whole decode worker: ${variant} takes ${own} as well.`
  const base = Math.min(
    ...results.filter(({ isBalancer }) => isBalancer).map(result => result.fewest?.value ?? Infinity),
  )
  return ` For ${asked} it takes ${own} in place of ${base}: ${many(fewest.gpusSaved, 'GPU')} fewer, ${money(fewest.savedPerYear!, 0)} a year at ${money(pricePerGpuHour)} a GPU hour.`
}

function noGainInWords(plan: Plan): string {
  const { policy, gain } = plan.verdict
  const base = resultOf(plan, plan.balancer).highest
  if (gain === null)
    return `Routing by experts does not pay here: ${plan.balancer} keeps the SLO up to ${threeDigits(base.value!)} requests a second, and no other policy at any rate.`
  const most = base.outcome === 'always' ? ', and more the workers cannot do at all' : ''
  return `Routing by experts does not pay here: its best, ${policy}, holds ${threeDigits(resultOf(plan, policy).highest.value!)} requests a second within the SLO, ${comparedWith(gain, 1)} ${plan.balancer}${most}.`
}

/** Why fewer experts do not give a higher rate. */
function notFollowed(plan: Plan): string {
  const isBatch = resultOf(plan, plan.verdict.policy).highest.limits.includes('decode_rate')
  return isBatch
    ? 'Batches are as large as a worker takes, so it is not the SLO that gives way.'
    : 'The p99 does not follow: it goes by the slowest steps, not by the mean one.'
}

/** What the policy does at the rate that the best load balancer can hold as well. */
function whyInWords(plan: Plan): string {
  const { sameRate, balancer, verdict } = plan
  const activeOf = (name: string) =>
    sameRate.points.find(({ variant }) => variant === name)!.probe.activeExperts
  const [own, base] = [activeOf(verdict.policy), activeOf(balancer)]
  return `At ${threeDigits(sameRate.rate)} requests a second its steps fire ${fixed(own, 1)} experts a layer in place of ${fixed(base, 1)} (${signedPercent(own / base - 1)}), and experts take ${percent(checkOf(plan, 'other_costs').value)} of a step’s time.`
}

/** A check that speaks against it, as a sentence with its number. */
export function reasonInWords(kind: CheckKind, plan: Plan): string {
  const { value, threshold } = checkOf(plan, kind)
  const saved = Math.max(0, checkOf(plan, 'no_structure').value)
  const base = plan.sameRate.points.find(({ variant }) => variant === plan.balancer)!.probe
  const tailOf = (variant: string) => `${fixed(resultOf(plan, variant).highest.probe.tpotP99Ms.mean, 1)} ms`
  switch (kind) {
    case 'small_batches':
      return `The SLO leaves room for batches of ${fixed(value, 1)} only: requests that are alone share no experts.`
    case 'every_expert_fires':
      return `Batches of ${whole(base.batch)} fire ${fixed(base.activeExperts, 1)} of ${plan.traffic.experts} experts (${percent(value)}), whichever requests they hold; the best policy fires ${percent(saved, 1)} fewer. A tighter SLO, and so smaller batches, would leave something to share.`
    case 'no_structure':
      return `Requests do not differ in a way that can be used: at the same rate the best policy fires ${percent(saved, 1)} fewer experts than ${plan.balancer}, in batches of ${fixed(base.batch, 1)}.`
    case 'weak_signature':
      return `The artifact’s signatures say next to nothing about decode: ρ is ${fixed(value, 3)}, and of use from ${threshold}.`
    case 'other_costs':
      return `Active experts account for ${percent(value)} of a step’s time; the rest stays whatever the routing.`
    case 'prefill_bound':
      return `Prefill gives way first, above ${threeDigits(value)} requests a second (${limitText(resultOf(plan, plan.verdict.policy).highest.limits)}): no decode policy changes that, more prefill workers would. There p99 TPOT is ${tailOf(plan.verdict.policy)} with ${plan.verdict.policy} and ${tailOf(plan.balancer)} with ${plan.balancer}${plan.rate === undefined ? ': --rate tells whether fewer decode workers do' : ''}.`
  }
}

/** A check for a table: its number, and what it should be. */
export function checkCells(
  { kind, value, threshold, against }: Check,
  { traffic }: Plan,
): { what: string; found: string; wanted: string } {
  switch (kind) {
    case 'small_batches':
      return { what: 'requests in a step', found: fixed(value, 1), wanted: `at least ${threshold}` }
    case 'every_expert_fires':
      return {
        what: `share of the ${traffic.experts} experts that fire`,
        found: percent(value),
        wanted: `below ${percent(threshold!)}, or fewer with some policy`,
      }
    case 'no_structure':
      return {
        what: 'fewer with the best policy',
        found: percent(value, 1),
        wanted: `at least ${percent(threshold!)}`,
      }
    case 'weak_signature':
      return { what: 'ρ of the artifact', found: fixed(value, 3), wanted: `at least ${threshold}` }
    case 'other_costs':
      return {
        what: 'experts’ share of a step’s time',
        found: percent(value),
        wanted: `at least ${percent(threshold!)}`,
      }
    case 'prefill_bound':
      return { what: 'gives way first', found: against ? 'prefill' : 'decode', wanted: 'decode' }
  }
}

/** Measured times as long as a request takes. */
const STEADY = 3

/** How long runs were, and a warning where that is too short to be near a steady state. */
export function spanInWords(plan: Plan): { readonly text: string; readonly isShort: boolean } {
  const probes = plan.results.map(({ highest }) => highest.probe)
  const lengths = (probe: Probe) => probe.spanSeconds / probe.requestSeconds
  const shortest = probes.reduce((a, b) => (lengths(b) < lengths(a) ? b : a))
  const isShort = lengths(shortest) < STEADY
  const measured = `At the highest rates a run of ${whole(shortest.requests)} requests is measured for ${threeDigits(shortest.spanSeconds)} s, ${threeDigits(lengths(shortest))} times as long as a request takes.`
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
