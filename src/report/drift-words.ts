/** Figures of drift scenarios as text, the same on the terminal and on the page. */
import { BOUND, type DriftFigures, keepsBound, worstOf } from '../sim/drift/bound.ts'
import { cellText } from './exhibit-cells.ts'
import { fixed, whole } from './numbers.ts'
import { changeText } from './simulation-measures.ts'

/** `Bound: at most +1 % p50 and +3 % p99, mean over seeds.` */
export function boundInWords(): string {
  return `Bound: at most +${whole(100 * BOUND.p50)} % p50 and +${whole(100 * BOUND.p99)} % p99, mean over seeds.`
}

/** Figures of one scenario by traffic and policy, each row with all rates. */
export function policyRows(figures: readonly DriftFigures[]): DriftFigures[][] {
  const rows = new Map<string, DriftFigures[]>()
  const traffics = [...new Set(figures.map(({ traffic }) => traffic))]
  for (const one of figures.toSorted((a, b) => traffics.indexOf(a.traffic) - traffics.indexOf(b.traffic))) {
    const key = `${one.traffic}|${one.policy}`
    rows.set(key, [...(rows.get(key) ?? []), one])
  }
  return [...rows.values()]
}

/** `−12.2 ± 0.3 / −4.1 ± 0.9 %`; times in ms for the baseline. */
export function changesText({ p50, p99, p50Change, p99Change }: DriftFigures): string {
  if (p50Change === undefined || p99Change === undefined)
    return `${fixed(p50.mean, 2)} / ${fixed(p99.mean, 2)}\u00a0ms`
  const { unit: _, ...first } = changeText(p50Change)
  return `${cellText(first)} / ${cellText(changeText(p99Change))}`
}

/** `+63.6 / +80.5 !`: the largest changes, and whether they miss the bound. */
export function worstText(figures: readonly DriftFigures[]): string {
  const worst = worstOf(figures)
  if (worst === undefined) return ''
  const text = (mean: number) => cellText({ value: 100 * mean, digits: 1, signed: true })
  const missed = keepsBound(worst) === false
  return `${text(worst.p50Change.mean)} / ${text(worst.p99Change.mean)}${missed ? ' !' : ''}`
}
