/** Figures without simulation, on the shipped traces. */
import { existsSync, readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { fitFile, shipped } from '../../test/data.ts'
import { clusterQualities } from './cluster-quality.ts'
import { domainBatchesExhibit } from './domain-batches.ts'
import { RECIPE } from './fits.ts'
import { moeLayerExhibit } from './moe-layer.ts'
import { tracesIn } from './traces.ts'
import type { ExhibitNumber } from '../report/exhibit.ts'
import { resultText } from '../report/result-text.ts'

const root = new URL('../../', import.meta.url)
const json = (path: string) => JSON.parse(readFileSync(new URL(path, root), 'utf8')) as never

describe('Fig. 2', () => {
  it('has the measured ratios between 16 and 128 experts of three shapes', async () => {
    const { finding, tables } = await moeLayerExhibit()
    const ratios = tables[0]!.rows.map(row => (row[3] as ExhibitNumber).value)
    expect(ratios.map(ratio => ratio.toFixed(2))).toEqual(['4.85', '7.03', '5.01'])
    expect(finding).toContain('4.9 times')
  })

  it.runIf(existsSync(new URL('bench/gpu/results/h200-raw.json.br', root)))(
    'ships the measurements of the benchmark',
    async () => {
      interface Fitted {
        shapes: Record<string, { fig2: { rows: { active: number; us_per_layer: number }[] } }>
      }
      interface Raw {
        shapes: Record<string, { decode: { batch: number; active: number; context: number; us: number }[] }>
      }
      const [fitted, raw]: [Fitted, Raw] = [
        json('bench/gpu/results/h200-fitted.json'),
        JSON.parse(await resultText(new URL('bench/gpu/results/h200-raw.json.br', root))) as never,
      ]
      const { shapes }: { shapes: { name: string; layerUs: unknown; stepUs: unknown }[] } =
        json('data/moe-layer-h200.json')
      expect(shapes.map(({ name }) => name)).toEqual(Object.keys(fitted.shapes))
      for (const { name, layerUs, stepUs } of shapes) {
        expect(layerUs).toEqual(fitted.shapes[name]!.fig2.rows.map(row => [row.active, row.us_per_layer]))
        const cells = raw.shapes[name]!.decode.filter(
          ({ active, context }) => active === 64 && context === 256,
        )
        expect(stepUs).toEqual(
          cells.toSorted((a, b) => a.batch - b.batch).map(({ batch, us }) => [batch, us]),
        )
      }
    },
  )
})

describe('Fig. 4', () => {
  it('finds fewer experts in batches of one domain at every size, and is deterministic', async () => {
    const pairs = await tracesIn()
    const [exhibit] = await domainBatchesExhibit(pairs)
    expect(exhibit!.tables).toHaveLength(2)
    for (const { rows } of exhibit!.tables) {
      for (const row of rows) expect((row[3] as ExhibitNumber).value).toBeLessThan(0)
    }
    expect(await domainBatchesExhibit(pairs)).toEqual([exhibit])
  })
})

describe('clusters by transform', () => {
  it('use the requests with gate scores, and share more than random requests; binary shares least', async () => {
    const { data } = await fitFile(shipped('lab16-task.calibration'), { ...RECIPE, restarts: 1 })
    const qualities = clusterQualities(data, { ...RECIPE, restarts: 1 }, 'task')
    expect(qualities.map(({ transform }) => transform)).toEqual([
      'count',
      'count-idf',
      'sqrt',
      'binary',
      'gate-prob',
      'gate-logit',
    ])
    for (const { requests, active, activeMixed } of qualities) {
      expect(requests).toBe(160)
      expect(active).toBeLessThan(0.95 * activeMixed)
    }
    expect(Math.max(...qualities.map(({ active }) => active))).toBe(qualities[3]!.active)
  })
})
