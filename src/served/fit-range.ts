/** For which batches a fitted profile describes the recorded steps, from the steps themselves. */
import { fixed, percent } from '../report/numbers.ts'
import type { ServedSteps } from './result-file.ts'

/** A batch whose median step is modelled worse than this is not described. */
const TOLERANCE = 0.05
/** Batches with fewer steps are left out. */
const MIN_STEPS = 20

/**
 * Batches that the model does not describe, and how well it describes the others; undefined if there are
 * none of the first kind.
 */
export function rangeInWords({ ms, batch }: ServedSteps, modelledMs: readonly number[]): string | undefined {
  const ratios = new Map<number, number[]>()
  batch.forEach((size, i) => ratios.set(size, [...(ratios.get(size) ?? []), modelledMs[i]! / ms[i]!]))
  const errors = [...ratios]
    .filter(([, own]) => own.length >= MIN_STEPS)
    .toSorted(([a], [b]) => a - b)
    .map(([size, own]) => ({ size, error: median(own) - 1 }))
  const isOff = ({ error }: { readonly error: number }) => Math.abs(error) > TOLERANCE
  const off = errors.filter(isOff)
  if (off.length === 0) return undefined
  const others = errors.filter(one => !isOff(one))
  const listed = off.map(
    ({ size, error }) => `${size} (${error > 0 ? '+' : ''}${fixed(100 * error, 0)}\u00a0%)`,
  )
  const rest =
    others.length === 0
      ? ''
      : `; the others, ${others[0]!.size} to ${others.at(-1)!.size}, are within ${percent(Math.max(...others.map(({ error }) => Math.abs(error))), 1)}`
  return `The median step is modelled more than ${percent(TOLERANCE)} off at batches of ${listed.join(', ')}${rest}.`
}

const median = (values: readonly number[]) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!
