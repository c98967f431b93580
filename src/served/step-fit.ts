/**
 * Fits the decode part of a cost profile to recorded steps of one engine alone on its device. Two forms are
 * tried: linear (all time is the device's), and the longer of a host part (base and requests) and a device
 * part. The second is taken only if it is clearly closer: on steps that are never short of experts the host
 * cannot be seen.
 */
import type { DecodeCost, HostCost } from '../cost/profile.ts'
import { leastSquares, nonNegativeLeastSquares } from '../math/least-squares.ts'
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
}

/** The host part must explain this share of the squared error that the linear form leaves. */
const CLEARLY = 0.05
const ROUNDS = 60
/** A step that takes this many times the modelled time had a pause: it is noise, and bends no line. */
const PAUSE = 1.5
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
  const all = Array.from({ length: count }, (_, i) => i)
  const first = fitRows(steps, all)
  const isUsual = (i: number) => 1000 * steps.ms[i]! < PAUSE * modelUs(steps, first, i)
  return summary(steps, layers, fitRows(steps, all.filter(isUsual)))
}

function fitRows(steps: ServedSteps, rows: readonly number[]): Parts {
  const linear: Parts = { device: fitDevice(steps, rows) }
  const hinged = fitHinge(steps, rows)
  if (hinged === undefined) return linear
  return squaresOf(steps, hinged, rows) < (1 - CLEARLY) * squaresOf(steps, linear, rows) ? hinged : linear
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
  }
}

/** Alternates between assigning steps to the longer part and fitting each part to its steps. */
function fitHinge(steps: ServedSteps, rows: readonly number[]): Parts | undefined {
  let best: { readonly parts: Parts; readonly squares: number } | undefined
  const experts = Float64Array.from(rows, i => steps.experts[i]!).sort()
  for (const share of [0.2, 0.4, 0.6, 0.8]) {
    const limit = quantile(experts, share)
    let ofHost = rows.filter(i => steps.experts[i]! <= limit)
    for (let round = 0; round < ROUNDS; round++) {
      const chosen = new Set(ofHost)
      const ofDevice = rows.filter(i => !chosen.has(i))
      if (ofHost.length < 10 || ofDevice.length < 10) break
      const parts = { host: fitHost(steps, ofHost), device: fitDevice(steps, ofDevice) }
      const squares = squaresOf(steps, parts, rows)
      if (best === undefined || squares < best.squares) best = { parts, squares }
      const next = rows.filter(i => isHostBound(steps, parts, i))
      if (next.length === ofHost.length && next.every((i, at) => i === ofHost[at])) break
      ofHost = next
    }
  }
  return best?.parts
}

function fitHost({ ms, batch }: ServedSteps, rows: readonly number[]): HostCost {
  const [baseUs = 0, perRequestUs = 0] = fitted([rows.map(() => 1), pick(batch, rows)], pickUs(ms, rows))
  return { baseUs, perRequestUs, overlaps: true }
}

function fitDevice({ ms, batch, experts, contextTokens }: ServedSteps, rows: readonly number[]): Device {
  const columns = [rows.map(() => 1), pick(batch, rows), pick(experts, rows)]
  const context = contextTokens === undefined ? [] : [pick(contextTokens, rows).map(tokens => tokens / 1000)]
  const [baseUs = 0, perRequestUs = 0, perExpertUs = 0, perContextKTokenUs = 0] = fitted(
    [...columns, ...context],
    pickUs(ms, rows),
  )
  return { baseUs, perRequestUs, perExpertUs, perContextKTokenUs }
}

/** Costs are not negative. A column that hardly varies, or follows from the others, says nothing and costs 0. */
function fitted(columns: readonly number[][], values: readonly number[]): number[] {
  const used: number[] = []
  columns.forEach((_, at) => {
    if (isIndependent([...used, at].map(one => columns[one]!))) used.push(at)
  })
  const { coefficients } = nonNegativeLeastSquares(
    used.map(at => columns[at]!),
    values,
  )
  const all = columns.map(() => 0)
  used.forEach((at, i) => (all[at] = coefficients[i]!))
  return all
}

function isIndependent(columns: readonly number[][]): boolean {
  if (columns[0]!.length < columns.length) return false
  try {
    leastSquares(columns, columns[0]!)
    return true
  } catch (error) {
    if (error instanceof RangeError) return false
    throw error
  }
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

function squaresOf(steps: ServedSteps, parts: Parts, rows: readonly number[]): number {
  return rows.reduce((sum, i) => sum + (1000 * steps.ms[i]! - modelUs(steps, parts, i)) ** 2, 0)
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
