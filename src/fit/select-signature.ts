import { EldrError } from '../errors.ts'
import { allPairsOf, drawPairs } from '../math/pairs.ts'
import type { Random } from '../math/random.ts'
import { layerFill } from '../signature/layer-fill.ts'
import { selectLayers } from '../signature/layer-selection.ts'
import { createPairSpace, maxPairs, type PairSpace, type SavedLayers } from '../signature/pair-space.ts'
import { isServable, TRANSFORM, type TransformName } from '../signature/transform.ts'
import { type Calibration, judgedRows, transformsOf, valuesOf } from './calibration.ts'
import type { LayerCurve, TransformQuality } from './summary.ts'

/** Selects the signature of a fit: transform, layers and their quality. */
export interface Selection {
  readonly transform: TransformName
  /** Ascending. */
  readonly layers: readonly number[]
  /** Absent without decode data. */
  readonly rho?: number
  readonly curve?: LayerCurve
}

export interface SelectionOptions {
  readonly transform: TransformName | 'auto'
  readonly layers: 'auto' | 'all' | readonly number[]
  readonly pairs: number
  readonly random: Random
  /** Called between pieces of work, at most a few thousand times. */
  readonly onProgress?: (what: string, done: number, total: number) => void
}

/** All pairs of 7,000 requests: more take gigabytes and add no information. */
const MAX_PAIRS = 25_000_000
/** Products of pairs and layers, 4 bytes each. */
const MAX_CACHED = 2 ** 24

/** With fewer requests, a rank correlation of their pairs is meaningless. */
export const FEWEST_JUDGED = 3

const allLayers = (data: Calibration) => Array.from({ length: data.layers }, (_, layer) => layer)

/**
 * ρ of any transform of one trace over fixed pairs. The space of the last rows used is kept: all but gate
 * transforms share it.
 */
export interface QualityMeter {
  readonly qualities: readonly TransformQuality[]
  /** ρ over these layers. */
  rho(transform: TransformName, layers: readonly number[]): number
  greedy(transform: TransformName): LayerCurve
}

/** Measures ρ over all layers for each transform that the trace allows (paper Fig. 7). Needs decode data. */
export function measureTransforms(
  data: Calibration,
  { pairs, random, onProgress }: SelectionOptions,
  file: string,
): QualityMeter {
  let space:
    | {
        rows: Uint32Array
        pairs: number
        of: PairSpace
        loaded?: TransformName
        saved: Map<TransformName, SavedLayers>
      }
    | undefined

  function load(transform: TransformName): PairSpace {
    const rows = judgedRows(data, transform)
    if (space === undefined || space.rows.length !== rows.length) space = openSpace(rows)
    const saved = space.saved.get(transform)
    if (saved !== undefined && space.loaded !== transform) space.of.restore(saved)
    else if (space.loaded !== transform) {
      space.of.load(
        layerFill(
          { ...data, values: valuesOf(data, TRANSFORM[transform].source)!, rows },
          transform,
          data.idf,
        ),
      )
    }
    space.loaded = transform
    return space.of
  }
  function openSpace(rows: Uint32Array) {
    const shape = { requests: rows.length, layers: data.layers, experts: data.experts }
    const wanted = Math.min(pairs, allPairsOf(rows.length))
    const max = Math.min(MAX_PAIRS, maxPairs(shape))
    if (wanted > max) {
      const todo = 'Ask for fewer pairs; some ten thousand are enough.'
      throw new EldrError('ELDR_FIT_BAD_OPTION', {
        file,
        found: `${wanted} pairs`,
        expected: `at most ${max}`,
        todo,
      })
    }
    const drawn = drawPairs(rows.length, pairs, random.fork(rows.length))
    const of = createPairSpace(shape, drawn)
    of.setTarget(layerFill({ ...data, values: data.decodeCounts!, rows }, 'count', data.idf))
    return { rows, pairs: drawn.i.length, of, saved: new Map<TransformName, SavedLayers>() }
  }

  /** Greedy selection needs the best two again; their products are kept unless they are large. */
  function remember(name: TransformName, so: readonly TransformQuality[]): void {
    if (!isServable(name) || space!.pairs * data.layers > MAX_CACHED) return
    const best = new Set(bestTwo(so))
    if (best.has(name)) space!.saved.set(name, space!.of.save())
    for (const other of space!.saved.keys()) if (!best.has(other)) space!.saved.delete(other)
  }

  const names = transformsOf(data).filter(name => judgedRows(data, name).length >= FEWEST_JUDGED)
  // Gate scores may exist for some requests only, which needs another space. They come first, so that the
  // shared space is the one that is kept.
  const order = names.toSorted((a, b) => Number(isServable(a)) - Number(isServable(b)))
  const measured: TransformQuality[] = []
  for (const name of order) {
    const rho = load(name).rho(allLayers(data))
    measured.push({
      name,
      rho,
      pairs: space!.pairs,
      requests: space!.rows.length,
      servable: isServable(name),
    })
    remember(name, measured)
    onProgress?.('ρ by transform', measured.length, names.length)
  }
  const qualities = names.map(name => measured.find(quality => quality.name === name)!)
  return {
    qualities,
    rho: (transform, layers) => load(transform).rho(layers),
    greedy(transform) {
      const { order, rho, peak } = selectLayers(load(transform), data.layers, (done, total) =>
        onProgress?.(`layers for ${transform}`, done, total),
      )
      return { transform, order, rho, peak }
    },
  }
}

/**
 * The best signature by ρ. `auto` considers only transforms that a hand-off can carry; greedy selection, the
 * expensive part, is tried for the two that are best over all layers. The chosen one comes first.
 */
export function selectSignature(
  data: Calibration,
  options: SelectionOptions,
  meter: QualityMeter,
): Selection[] {
  const candidates = options.transform === 'auto' ? bestTwo(meter.qualities) : [options.transform]
  const selections = candidates.map((transform): Selection => {
    if (options.layers === 'auto') {
      const curve = meter.greedy(transform)
      return {
        transform,
        layers: curve.order.slice(0, curve.peak).sort((a, b) => a - b),
        rho: curve.rho[curve.peak - 1]!,
        curve,
      }
    }
    const layers = options.layers === 'all' ? allLayers(data) : options.layers
    return { transform, layers, rho: meter.rho(transform, layers) }
  })
  return selections.toSorted((a, b) => b.rho! - a.rho!)
}

function bestTwo(qualities: readonly TransformQuality[]): TransformName[] {
  const allowed = qualities.filter(({ servable }) => servable).toSorted((a, b) => b.rho - a.rho)
  return allowed.slice(0, 2).map(({ name }) => name)
}

/** The transform with the highest ρ over all layers. */
export function bestOf(
  qualities: readonly TransformQuality[],
  among: (name: TransformName) => boolean,
): TransformName {
  return qualities
    .filter(({ name }) => among(name))
    .reduce((best, quality) => (quality.rho > best.rho ? quality : best)).name
}

/** True if ρ can be measured: some requests have counts and decode steps. */
export function canJudge(data: Calibration): boolean {
  return data.decodeSteps !== undefined && judgedRows(data, 'count').length >= FEWEST_JUDGED
}

/** Used if nothing can be measured: the paper's transform and all layers, unless others are requested. */
export function selectUnmeasured(
  data: Calibration,
  options: SelectionOptions,
): { qualities: []; selections: [Selection]; fallback?: Selection } {
  const layers = typeof options.layers === 'string' ? allLayers(data) : options.layers
  const transform = options.transform === 'auto' ? 'count-idf' : options.transform
  const { source, idf } = TRANSFORM[transform]
  return {
    qualities: [],
    selections: [{ transform, layers }],
    fallback: source === 'recent' ? { transform: idf ? 'count-idf' : 'count', layers } : undefined,
  }
}
