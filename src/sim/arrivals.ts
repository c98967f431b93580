/**
 * When requests arrive: one process for steady traffic, two for bursts, and recorded times. All have exactly
 * the requested mean rate.
 */
import type { Random } from '../math/random.ts'

export type ArrivalSpec =
  /** Exponential gaps. */
  | { readonly kind: 'poisson'; readonly perSecond: number }
  /**
   * Gaps from a gamma distribution: bursts below shape 1 (squared coefficient of variation 1/shape), Poisson
   * at 1.
   */
  | { readonly kind: 'gamma'; readonly perSecond: number; readonly shape: number }
  /**
   * Poisson while on, nothing while off; both phases have exponential length. `perSecond` is the mean over
   * both.
   */
  | {
      readonly kind: 'on_off'
      readonly perSecond: number
      readonly onSeconds: number
      readonly offSeconds: number
    }
  /** Ascending times; `perSecond` stretches them to that mean rate, which keeps the shape of the bursts. */
  | { readonly kind: 'recorded'; readonly timesUs: Float64Array; readonly perSecond?: number }

/** Ascending times in microseconds, one per call; Infinity after the last. */
export type Arrivals = () => number

export function createArrivals(spec: ArrivalSpec, random: Random): Arrivals {
  if (spec.kind === 'recorded') return recorded(spec.timesUs, spec.perSecond)
  checkPositive(spec.perSecond, 'perSecond')
  const meanGapUs = 1e6 / spec.perSecond
  if (spec.kind === 'on_off') return onOff(meanGapUs, spec.onSeconds * 1e6, spec.offSeconds * 1e6, random)
  let timeUs = 0
  if (spec.kind === 'poisson') return () => (timeUs += exponential(random) * meanGapUs)
  const { shape } = spec
  checkPositive(shape, 'shape')
  return () => (timeUs += (gamma(shape, random) / shape) * meanGapUs)
}

function onOff(meanGapUs: number, onUs: number, offUs: number, random: Random): Arrivals {
  checkPositive(onUs, 'onSeconds')
  checkPositive(offUs, 'offSeconds')
  const gapWhileOnUs = meanGapUs * (onUs / (onUs + offUs))
  let timeUs = 0
  let offAtUs = exponential(random) * onUs
  return () => {
    let gapUs = exponential(random) * gapWhileOnUs
    // A gap longer than the phase continues in the next one: the exponential distribution has no memory.
    while (timeUs + gapUs > offAtUs) {
      gapUs -= offAtUs - timeUs
      timeUs = offAtUs + exponential(random) * offUs
      offAtUs = timeUs + exponential(random) * onUs
    }
    return (timeUs += gapUs)
  }
}

function recorded(timesUs: Float64Array, perSecond: number | undefined): Arrivals {
  const first = timesUs[0] ?? 0
  const spanUs = (timesUs.at(-1) ?? 0) - first
  const wantedUs = perSecond === undefined ? spanUs : ((timesUs.length - 1) / perSecond) * 1e6
  const stretch = spanUs === 0 ? 1 : wantedUs / spanUs
  let next = 0
  return () => (next < timesUs.length ? (timesUs[next++]! - first) * stretch : Infinity)
}

/** Mean 1. */
function exponential(random: Random): number {
  return -Math.log(1 - random.uniform())
}

/** Gamma with scale 1 (Marsaglia and Tsang 2000); below shape 1 by a power of a uniform. */
function gamma(shape: number, random: Random): number {
  if (shape < 1) return gamma(shape + 1, random) * (1 - random.uniform()) ** (1 / shape)
  const d = shape - 1 / 3
  const c = 1 / Math.sqrt(9 * d)
  for (;;) {
    const x = normal(random)
    const v = (1 + c * x) ** 3
    if (v > 0 && Math.log(1 - random.uniform()) < 0.5 * x * x + d - d * v + d * Math.log(v)) return d * v
  }
}

function normal(random: Random): number {
  return Math.sqrt(2 * exponential(random)) * Math.cos(2 * Math.PI * random.uniform())
}

function checkPositive(value: number, name: string): void {
  if (!(value > 0 && Number.isFinite(value)))
    throw new RangeError(`${name} is ${value}, not a number above 0`)
}
