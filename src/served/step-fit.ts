/**
 * Fits the decode part of a cost profile to recorded steps of one engine alone on its device. Two forms are
 * tried: linear (all time is the device's), and the longer of a constant host part and a device part. The
 * second is taken only if it is clearly closer: on steps that are never short of experts the host cannot be
 * seen.
 *
 * Both are fits of least absolute deviations: like a median, they do not follow the few steps in which the
 * engine paused, however long these were.
 */
import type { DecodeCost, HostCost } from '../cost/profile.ts'
import { nonNegativeFit, ROUNDS, smallestDeviation } from '../math/least-absolute.ts'
import { rangeInWords } from './fit-range.ts'
import type { ServedSteps } from './result-file.ts'

export interface StepFit {
  readonly decode: DecodeCost
  /** |modelled/measured − 1| of the steps. */
  readonly error: { readonly median: number; readonly p90: number; readonly worst: number }
  /** Share of the variance of the measured times that the model explains. */
  readonly r2: number
  /** Share of the steps whose host part is the longer one; 0 without a host part. */
  readonly hostBound: number
  readonly steps: number
  /** A sentence on the batches that the model describes, if it does not describe all. */
  readonly holds?: string
}

/**
 * The host part must explain this share of the absolute error that the linear form leaves in the usual steps.
 */
const CLEARLY = 0.2
/** Share of the steps, those with the smallest deviations, that count for that: no form explains pauses. */
const USUAL = 0.75
/** Percentiles of the noise. */
const FACTORS = 101

interface Device {
  readonly baseUs: number
  readonly perRequestUs: number
  readonly perExpertUs: number
  readonly perContextKTokenUs: number
}

/** Without a host part the device's is the step. */
interface Parts {
  readonly device: Device
  readonly host?: HostCost
}

export function fitSteps(steps: ServedSteps, layers: number): StepFit {
  const count = steps.ms.length
  if (count < 20) throw new RangeError(`${count} steps, too few for a fit`)
  const linear = fitLinear(steps)
  const hinged = fitHinge(steps)
  const isHinged =
    hinged !== undefined && usualError(steps, hinged) < (1 - CLEARLY) * usualError(steps, linear)
  return summary(steps, layers, isHinged ? hinged.parts : linear.parts)
}

/** Factors of a profile's noise: measured over modelled time at every percentile. */
export function noiseFactors(ratios: readonly number[]): number[] {
  const sorted = Float64Array.from(ratios).sort()
  const factors = Array.from({ length: FACTORS }, (_, at) => quantile(sorted, at / (FACTORS - 1)))
  // One slow step must not stand for a hundredth of them: the last hundredth keeps its mean.
  const tail = sorted.subarray(Math.floor(0.99 * sorted.length))
  const tailMean = tail.reduce((sum, value) => sum + value, 0) / tail.length
  factors[FACTORS - 1] = Math.max(factors[FACTORS - 2]!, 2 * tailMean - factors[FACTORS - 2]!)
  return factors.map(factor => Number(factor.toFixed(4)))
}

function summary(steps: ServedSteps, layers: number, parts: Parts): StepFit {
  const { device, host } = parts
  const modelled = steps.ms.map((_, i) => modelUs(steps, parts, i) / 1000)
  const errors = Float64Array.from(steps.ms, (ms, i) => Math.abs(modelled[i]! / ms - 1)).sort()
  const mean = steps.ms.reduce((a, b) => a + b, 0) / steps.ms.length
  const total = steps.ms.reduce((sum, ms) => sum + (ms - mean) ** 2, 0)
  const left = steps.ms.reduce((sum, ms, i) => sum + (ms - modelled[i]!) ** 2, 0)
  return {
    decode: {
      kind: 'linear',
      baseUs: rounded(device.baseUs),
      perRequestUs: rounded(device.perRequestUs),
      perLayerUs: 0,
      perActiveExpertUs: rounded(device.perExpertUs / layers),
      perContextKTokenUs: rounded(device.perContextKTokenUs),
      ...(host && {
        host: { ...host, baseUs: rounded(host.baseUs), perRequestUs: rounded(host.perRequestUs) },
      }),
      noise: { factors: noiseFactors(steps.ms.map((ms, i) => ms / modelled[i]!)) },
    },
    error: { median: quantile(errors, 0.5), p90: quantile(errors, 0.9), worst: errors.at(-1)! },
    r2: total === 0 ? 1 : 1 - left / total,
    hostBound: steps.ms.filter((_, i) => isHostBound(steps, parts, i)).length / steps.ms.length,
    steps: steps.ms.length,
    holds: rangeInWords(steps, modelled),
  }
}

/** Parts and the sum of their absolute deviations, in microseconds. */
interface Candidate {
  readonly parts: Parts
  readonly error: number
}

function fitLinear(steps: ServedSteps): Candidate {
  const all = steps.ms.map((_, i) => i)
  const even = all.map(() => 1)
  return reweighted(steps, { device: fitDevice(steps, all, even) }, weights => ({
    device: fitDevice(steps, all, weights),
  }))!
}

/** Begins with the steps of the fewest experts as the host's, for several shares of the steps. */
function fitHinge(steps: ServedSteps): Candidate | undefined {
  const all = steps.ms.map((_, i) => i)
  const even = all.map(() => 1)
  const experts = Float64Array.from(steps.experts).sort()
  const fitBoth = (isHost: (i: number) => boolean, weights: readonly number[]): Parts | undefined => {
    const [ofHost, ofDevice] = [all.filter(isHost), all.filter(i => !isHost(i))]
    if (ofHost.length < 10 || ofDevice.length < 10) return undefined
    return {
      host: fitHost(steps, ofHost, weights),
      device: fitDevice(steps, ofDevice, weights),
    }
  }
  return [0.2, 0.4, 0.6, 0.8]
    .map(share => {
      const limit = quantile(experts, share)
      const first = fitBoth(i => steps.experts[i]! <= limit, even)
      return (
        first && reweighted(steps, first, (weights, now) => fitBoth(i => isHostBound(steps, now, i), weights))
      )
    })
    .reduce(closer, undefined)
}

/**
 * Least absolute deviations by least squares with weights of 1/|deviation|, repeated. Each round also assigns
 * the steps again to the part that is longer. The best of all rounds.
 */
function reweighted(
  steps: ServedSteps,
  first: Parts,
  fit: (weights: readonly number[], now: Parts) => Parts | undefined,
): Candidate | undefined {
  const smallest = 1000 * smallestDeviation(steps.ms)
  let parts: Parts | undefined = first
  let best: Candidate | undefined
  for (let round = 0; round < ROUNDS && parts !== undefined; round++) {
    const now: Parts = parts
    const deviations = deviationsUs(steps, now)
    best = closer(best, { parts: now, error: deviations.reduce((a, b) => a + b, 0) })
    parts = fit(
      deviations.map(value => 1 / Math.max(value, smallest)),
      now,
    )
  }
  return best
}

function usualError(steps: ServedSteps, { parts }: Candidate): number {
  const sorted = Float64Array.from(deviationsUs(steps, parts)).sort()
  return sorted.subarray(0, Math.ceil(USUAL * sorted.length)).reduce((a, b) => a + b, 0)
}

function deviationsUs(steps: ServedSteps, parts: Parts): number[] {
  return steps.ms.map((ms, i) => Math.abs(1000 * ms - modelUs(steps, parts, i)))
}

function closer(a: Candidate | undefined, b: Candidate | undefined): Candidate | undefined {
  return a === undefined || (b !== undefined && b.error < a.error) ? b : a
}

/** `weights`: of all steps; `rows`: those that are fitted. */
function fitHost({ ms }: ServedSteps, rows: readonly number[], weights: readonly number[]): HostCost {
  const [baseUs = 0] = nonNegativeFit([rows.map(() => 1)], pickUs(ms, rows), pick(weights, rows))
  return { baseUs, perRequestUs: 0, overlaps: true }
}

function fitDevice(
  { ms, batch, experts, contextTokens }: ServedSteps,
  rows: readonly number[],
  weights: readonly number[],
): Device {
  const columns = [rows.map(() => 1), pick(batch, rows), pick(experts, rows)]
  const context = contextTokens === undefined ? [] : [pick(contextTokens, rows).map(tokens => tokens / 1000)]
  const [baseUs = 0, perRequestUs = 0, perExpertUs = 0, perContextKTokenUs = 0] = nonNegativeFit(
    [...columns, ...context],
    pickUs(ms, rows),
    pick(weights, rows),
  )
  return { baseUs, perRequestUs, perExpertUs, perContextKTokenUs }
}

function deviceUs({ batch, experts, contextTokens }: ServedSteps, device: Device, i: number): number {
  const contextUs = device.perContextKTokenUs * ((contextTokens?.[i] ?? 0) / 1000)
  return device.baseUs + device.perRequestUs * batch[i]! + device.perExpertUs * experts[i]! + contextUs
}

function hostUs({ batch }: ServedSteps, { host }: Parts, i: number): number {
  return host === undefined ? 0 : host.baseUs + host.perRequestUs * batch[i]!
}

function isHostBound(steps: ServedSteps, parts: Parts, i: number): boolean {
  return hostUs(steps, parts, i) > deviceUs(steps, parts.device, i)
}

function modelUs(steps: ServedSteps, parts: Parts, i: number): number {
  return Math.max(hostUs(steps, parts, i), deviceUs(steps, parts.device, i))
}

const pick = (values: readonly number[], rows: readonly number[]): number[] => rows.map(i => values[i]!)
const pickUs = (ms: readonly number[], rows: readonly number[]): number[] => rows.map(i => 1000 * ms[i]!)
const rounded = (value: number): number => Number(value.toPrecision(6))

/** Interpolates between the two nearest values. */
export function quantile(sorted: ArrayLike<number>, share: number): number {
  const place = share * (sorted.length - 1)
  const low = Math.min(Math.floor(place), sorted.length - 1)
  const high = Math.min(low + 1, sorted.length - 1)
  return sorted[low]! + (sorted[high]! - sorted[low]!) * (place - low)
}
