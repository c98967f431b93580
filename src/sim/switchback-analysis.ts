/**
 * What a switchback experiment shows. The slot is the unit, not the request: requests of a slot share batches
 * and are not independent. Slots are compared within their block, on a log scale, and the interval is
 * Student's over the blocks. The verdict looks at several figures, so it asks more of each than its interval
 * of 95 % does.
 */
import type { SlotFigures } from '../math/switchback.ts'
import { meanInterval, studentP } from './confidence.ts'

export interface MeasuredSlot extends SlotFigures {
  readonly policy: string
}

export interface Effect {
  readonly figure: FigureName
  /** Geometric means over the blocks. */
  readonly base: number
  readonly other: number
  /** Relative change against the base policy with its 95 % interval: −0.1 is a tenth less. */
  readonly change: number
  readonly low: number
  readonly high: number
  /** Chance of a difference as large between equal policies. */
  readonly p: number
  /** Blocks in which both policies have this figure. */
  readonly blocks: number
  /**
   * Correlation of a block's difference with the next one's. Far from 0 the blocks are not independent: the
   * slots are too short for the traffic.
   */
  readonly lag1: number
}

const FIGURES = {
  'TPOT p50': ({ tpotMs }) => tpotMs.p50,
  'TPOT p99': ({ tpotMs }) => tpotMs.p99,
  'TTFT p50': ({ ttftMs }) => ttftMs.p50,
  'TTFT p99': ({ ttftMs }) => ttftMs.p99,
  'output tokens/s': ({ outputTokensPerSecond }) => outputTokensPerSecond,
} as const satisfies Readonly<Record<string, (slot: SlotFigures) => number | null>>

export type FigureName = keyof typeof FIGURES
export const FIGURE_NAMES = Object.keys(FIGURES) as readonly FigureName[]

/** Needed for an interval. */
const MIN_BLOCKS = 2

/**
 * Effects of `policy` against `base`. `slots` are in the order they ran, in blocks of `policies` slots. A
 * figure that fewer than two blocks have is left out.
 */
export function effectsOf(
  slots: readonly MeasuredSlot[],
  policies: number,
  base: string,
  policy: string,
): Effect[] {
  const pairs = blocksOf(slots, policies).flatMap(block => {
    const [of, other] = [base, policy].map(name => block.find(slot => slot.policy === name))
    return of === undefined || other === undefined ? [] : [[of, other] as const]
  })
  return FIGURE_NAMES.flatMap(figure => {
    const valueOf: (slot: SlotFigures) => number | null = FIGURES[figure]
    const logs = pairs.flatMap(([of, other]) => {
      const [a, b] = [valueOf(of), valueOf(other)]
      return a === null || b === null || !(a > 0 && b > 0) ? [] : [[Math.log(a), Math.log(b)] as const]
    })
    if (logs.length < MIN_BLOCKS) return []
    const differences = logs.map(([a, b]) => b - a)
    const { mean, half } = meanInterval(differences)
    const error = standardError(differences, mean)
    const geometric = (which: 0 | 1) =>
      Math.exp(logs.reduce((sum, pair) => sum + pair[which], 0) / logs.length)
    return {
      figure,
      base: geometric(0),
      other: geometric(1),
      change: Math.expm1(mean),
      low: Math.expm1(mean - half),
      high: Math.expm1(mean + half),
      p: mean === 0 ? 1 : studentP(mean / error, logs.length - 1),
      blocks: logs.length,
      lag1: lag1Of(differences, mean),
    }
  })
}

/** True if the interval does not contain 0. */
export const isFound = ({ low, high }: Pick<Effect, 'low' | 'high'>): boolean => low > 0 || high < 0

function standardError(values: readonly number[], mean: number): number {
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0)
  return Math.sqrt(squares / (values.length - 1) / values.length)
}

function blocksOf(slots: readonly MeasuredSlot[], size: number): MeasuredSlot[][] {
  return Array.from({ length: Math.floor(slots.length / size) }, (_, block) =>
    slots.slice(block * size, (block + 1) * size),
  )
}

function lag1Of(values: readonly number[], mean: number): number {
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0)
  if (squares === 0) return 0
  const products = values.slice(1).reduce((sum, value, at) => sum + (value - mean) * (values[at]! - mean), 0)
  return products / squares
}

/**
 * better, worse: in TPOT. mixed: better in one figure and worse in another, or no difference in TPOT and
 * worse in another figure. undecided: no difference was found. unmeasured: TPOT was not measured.
 */
export type Outcome = 'better' | 'worse' | 'mixed' | 'undecided' | 'unmeasured'

/**
 * At most 5 % of experiments with equal policies may get a verdict: 2 % by each of the two figures of TPOT,
 * and 1 % by the three others, which count only where they are worse, so that each may have twice a third of
 * it.
 */
const TPOT_ERROR = 0.02
const OTHER_ERROR = (2 * 0.01) / 3

const isTpot = ({ figure }: Pick<Effect, 'figure'>) => figure.startsWith('TPOT')

/** True if the verdict counts this difference. */
export const isCounted = (effect: Pick<Effect, 'figure' | 'p'>): boolean =>
  effect.p < (isTpot(effect) ? TPOT_ERROR : OTHER_ERROR)

/** More is better of throughput, less of times. */
export const isWorse = ({ figure, change }: Pick<Effect, 'figure' | 'change'>): boolean =>
  figure === 'output tokens/s' ? change < 0 : change > 0

/** By TPOT p50 and p99, which routing of decode requests changes, unless another figure is worse. */
export function outcomeOf(effects: readonly Effect[]): Outcome {
  if (!effects.some(isTpot)) return 'unmeasured'
  const counted = effects.filter(isCounted)
  const tpot = counted.filter(isTpot)
  const worse = tpot.filter(isWorse).length
  const othersWorse = counted.some(effect => !isTpot(effect) && isWorse(effect))
  if (tpot.length === 0) return othersWorse ? 'mixed' : 'undecided'
  if (worse === tpot.length) return 'worse'
  return worse > 0 || othersWorse ? 'mixed' : 'better'
}
