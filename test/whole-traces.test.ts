import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { readCalibration } from '../src/fit/calibration.ts'
import { measureTransforms, selectSignature } from '../src/fit/select-signature.ts'
import { createRandom } from '../src/math/random.ts'
import { withTrace } from '../src/trace/trace.ts'
import { fitFile, shipped, whole } from './data.ts'

interface Reference {
  pairs: number
  transforms: Record<string, { rho: number; greedy?: { order: number[]; rho: number[]; peak: number } }>
}
const lab16 = JSON.parse(
  readFileSync(new URL('golden/numerics/lab16.json', import.meta.url), 'utf8'),
) as Record<string, Reference>

/** From NumPy, over 20,000–40,000 random pairs. */
const REFERENCE: Record<string, Record<string, number>> = {
  'lab16-task': {
    count: 0.7,
    'count-idf': 0.709,
    sqrt: 0.643,
    binary: 0.247,
    'gate-prob': 0.668,
    'gate-logit': 0.665,
  },
  'lab16-lang': {
    count: 0.591,
    'count-idf': 0.585,
    sqrt: 0.548,
    binary: 0.18,
    'gate-prob': 0.563,
    'gate-logit': 0.608,
  },
}

/**
 * NumPy's figures for the whole lab16 traces. Those are not shipped; without them beside the checkout the
 * tests are skipped.
 */
describe.each(['lab16-task', 'lab16-lang'])('the whole %s trace', name => {
  const path = whole(`${name}.calibration`)

  it.skipIf(path === undefined)(
    'has the ρ that NumPy gives, for every transform over all pairs',
    async () => {
      const { transforms, pairs } = lab16[name]!
      await withTrace(path!, async trace => {
        const meter = measureTransforms(
          await readCalibration(trace),
          { transform: 'auto', layers: 'all', pairs: Infinity, random: createRandom(0) },
          path!,
        )
        expect(meter.qualities).toHaveLength(6)
        for (const { name: transform, rho, pairs: used } of meter.qualities) {
          expect(used).toBe(pairs)
          expect(rho).toBeCloseTo(transforms[transform]!.rho, 4)
        }
      })
    },
  )

  it.skipIf(path === undefined)('has ρ within 0.015 of the reference with default settings', async () => {
    const { qualities } = await fitFile(path!, { workers: 4, restarts: 1 })
    const reference = REFERENCE[name]!
    expect(qualities.map(({ name: transform }) => transform)).toEqual(Object.keys(reference))
    for (const { name: transform, rho } of qualities)
      expect(Math.abs(rho - reference[transform]!)).toBeLessThan(0.015)
  })

  it.skipIf(path === undefined)('has a greedy peak near NumPy’s, above all layers', async () => {
    await withTrace(path!, async trace => {
      const options = {
        transform: 'count-idf',
        layers: 'auto',
        pairs: 40_000,
        random: createRandom(3),
      } as const
      const data = await readCalibration(trace)
      const { rho, layers, curve } = selectSignature(
        data,
        options,
        measureTransforms(data, options, path!),
      )[0]!
      const { greedy } = lab16[name]!.transforms['count-idf']!
      expect(rho).toBeGreaterThan(curve!.rho.at(-1)! + 0.005)
      expect(Math.abs(rho! - greedy!.rho[greedy!.peak - 1]!)).toBeLessThan(0.015)
      expect(layers.length).toBeGreaterThanOrEqual(4)
      expect(layers.length).toBeLessThanOrEqual(8)
    })
  })
})

describe.each([
  ['tiny6-long-task', { count: 0.877, 'count-idf': 0.856, recent: 0.888, 'recent-idf': 0.864 }],
  ['tiny6-long-lang', { count: 0.845, 'count-idf': 0.821, recent: 0.853, 'recent-idf': 0.836 }],
] as const)('the shipped %s trace', (name, expected) => {
  it('has the ρ that NumPy gives, recent counts ahead', async () => {
    await withTrace(shipped(`${name}.calibration`), async trace => {
      const meter = measureTransforms(
        await readCalibration(trace),
        { transform: 'auto', layers: 'all', pairs: Infinity, random: createRandom(0) },
        name,
      )
      for (const [transform, rho] of Object.entries(expected)) {
        expect(Math.abs(meter.qualities.find(quality => quality.name === transform)!.rho - rho)).toBeLessThan(
          0.015,
        )
      }
    })
  })
})
