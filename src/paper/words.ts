/** Numbers of exhibits, and the phrases used in findings. */
import type { ExhibitNumber } from '../report/exhibit.ts'
import { whole } from '../report/numbers.ts'
import type { Interval } from '../sim/confidence.ts'
import { fixed } from './rounded.ts'

export function number(value: number, digits: number, unit?: string): ExhibitNumber {
  return { value, digits, unit }
}

/** A mean with its interval, if finite. */
export function mean({ mean: value, half }: Interval, digits: number, unit?: string): ExhibitNumber {
  return { ...number(value, digits, unit), half: finite(half) }
}

/** An interval over a single run is not finite and is left out. */
const finite = (half: number): number | undefined => (Number.isFinite(half) ? half : undefined)

/** Ends of an interval, if finite. */
export const ends = (value: number, half: number): { readonly low?: number; readonly high?: number } =>
  Number.isFinite(half) ? { low: value - half, high: value + half } : {}

/** A share as a change in percent. */
export function change(interval: Interval | undefined): ExhibitNumber | null {
  if (interval === undefined || !Number.isFinite(interval.mean)) return null
  const { mean: value, half } = interval
  return { value: 100 * value, digits: 1, unit: '%', signed: true, half: finite(100 * half) }
}

/** −0.105 → “−10.5 %”. */
export function signedPercent(share: number, digits = 1): string {
  const shown = fixed(100 * share, digits)
  return `${share > 0 && /[1-9]/.test(shown) ? '+' : ''}${shown}\u00a0%`
}

/** “−12.9 to −10.5 %”, lowest to highest; one number if both print the same. */
export function span(shares: readonly number[], digits = 1): string {
  const [low, high] = [Math.min(...shares), Math.max(...shares)]
  const [from, to] = [signedPercent(low, digits), signedPercent(high, digits)]
  return from === to ? from : `${from.replace('\u00a0%', '')} to ${to}`
}

/** The same for plain numbers. */
export function range(values: readonly number[], digits: number): string {
  const [from, to] = [fixed(Math.min(...values), digits), fixed(Math.max(...values), digits)]
  return from === to ? from : `${from} to ${to}`
}

/** −0.105 → “10.5 % fewer”; several → “7.0 to 8.9 % fewer”. */
export function fewer(...shares: readonly number[]): string {
  const word = Math.max(...shares) > 0 ? 'more' : 'fewer'
  return Math.max(...shares) > 0 && Math.min(...shares) < 0
    ? `${span(shares)} more`
    : `${range(
        shares.map(share => 100 * Math.abs(share)),
        1,
      )}\u00a0% ${word}`
}

export function listed(names: readonly (string | number)[]): string {
  if (names.length < 2) return `${names[0] ?? 'none'}`
  return `${names.slice(0, -1).join(', ')} and ${names.at(-1)}`
}

/** “2 of the 8”, “all 8”, “none of the 8”. */
export function outOf(some: number, all: number): string {
  if (some === all) return `all ${whole(all)}`
  return some === 0 ? `none of the ${whole(all)}` : `${whole(some)} of the ${whole(all)}`
}

/** Enough of a hash to distinguish files. */
export const shortHash = (sha256: string): string => sha256.slice(0, 12)

export const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0)
export const average = (values: readonly number[]): number => sum(values) / values.length
