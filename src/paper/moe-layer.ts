/**
 * Fig. 2: time of an MoE layer by active experts. Measured once on a GPU; the timings ship with the package.
 */
import { readFile } from 'node:fs/promises'
import type { Exhibit } from '../report/exhibit.ts'
import { whole } from '../report/numbers.ts'
import { fixed } from './rounded.ts'
import { listed, number, range, signedPercent } from './words.ts'

/** data/moe-layer-h200.json */
interface MoeLayerTimes {
  readonly what: string
  readonly measuredOn: string
  readonly date: string
  readonly source: string
  readonly batch: number
  readonly active: number
  readonly shapes: readonly {
    readonly name: string
    readonly model: string
    /** [active experts, µs of one MoE layer] at `batch`. */
    readonly layerUs: readonly (readonly [number, number])[]
    /** [batch, µs of a whole step] at `active` experts per layer. */
    readonly stepUs: readonly (readonly [number, number])[]
  }[]
}

const FILE = new URL('../../data/moe-layer-h200.json', import.meta.url)
const [FEW, MANY] = [16, 128] as const

export async function moeLayerExhibit(): Promise<Exhibit> {
  const times = JSON.parse(await readFile(FILE, 'utf8')) as MoeLayerTimes
  const at = (rows: readonly (readonly [number, number])[], x: number) =>
    rows.find(([value]) => value === x)?.[1] ?? NaN
  const shapes = times.shapes.map(shape => {
    const steps = shape.stepUs.map(([, us]) => us)
    return {
      ...shape,
      short: shape.model.split('/').at(-1)!,
      growth: at(shape.layerUs, MANY) / at(shape.layerUs, FEW),
      /** Longest step over the shortest, over batches, minus 1. */
      byBatch: Math.max(...steps) / Math.min(...steps) - 1,
    }
  })
  const batches = shapes[0]!.stepUs.map(([batch]) => batch)
  const [first] = shapes
  return {
    id: 'fig-2',
    title: 'Fig. 2: MoE layer time by active experts',
    finding: `With ${MANY} active experts an MoE layer takes ${fixed(first!.growth, 1)} times as long as with ${FEW} (${first!.short}, batch ${times.batch}); ${listed(shapes.slice(1).map(({ short, growth }) => `${short} ${fixed(growth, 1)} times`))}. At ${times.active} active experts, the time of a whole step varies by ${signedPercent(first!.byBatch, 0).replace('+', '')} between batches of ${range(batches, 0)} (${first!.short}).`,
    paper: {
      finding:
        'The layer takes 4.7 times as long on one MI300X for Qwen3-30B-A3B at batch 64; at a fixed number of experts the batch hardly matters.',
      differs:
        'Another GPU and another kernel: an H200 with torch’s grouped GEMM, and GPT-OSS in bf16 instead of mxfp4.',
    },
    source: `Measured on ${times.measuredOn}, ${times.date}; ${times.source}.`,
    tables: [
      {
        columns: [
          'model shape',
          `µs, ${FEW} experts`,
          `µs, ${MANY} experts`,
          'ratio',
          'step time over batches',
        ],
        rows: shapes.map(({ short, layerUs, growth, byBatch }) => [
          short,
          number(at(layerUs, FEW), 0),
          number(at(layerUs, MANY), 0),
          number(growth, 2, '×'),
          { ...number(100 * byBatch, 1, '%'), signed: true },
        ]),
      },
    ],
    charts: [
      {
        kind: 'lines',
        title: `One MoE layer at batch ${whole(times.batch)}`,
        x: 'active experts',
        y: 'µs',
        series: shapes.map(({ short, layerUs }) => ({
          label: short,
          points: layerUs.map(([x, y]) => ({ x, y })),
        })),
      },
      {
        kind: 'lines',
        title: `A whole decode step with ${times.active} active experts per layer`,
        x: 'requests in the batch',
        y: 'ms',
        series: shapes.map(({ short, stepUs }) => ({
          label: short,
          points: stepUs.map(([x, us]) => ({ x, y: us / 1000 })),
        })),
      },
    ],
  }
}
