import { describe, expect, it } from 'vitest'
import { createRandom } from '../math/random.ts'
import { createMixDraw, type MixSpec, mixWeights } from './mix-draw.ts'

const domains = ['code', 'law', 'math', 'none']
/** Half of the rows code, three tenths law, two tenths math. */
const domainOf = Array.from({ length: 100 }, (_, row) => (row < 50 ? 0 : row < 80 ? 1 : 2))
const shares = [0.5, 0.3, 0.2, 0]

/** Shares of the domains among requests that arrive every 10 ms between two times. */
function drawn(spec: MixSpec, fromSeconds: number, toSeconds: number, seed = 0): number[] {
  const draw = createMixDraw({ spec, domains, domainOf }, createRandom(seed))
  const counts = domains.map(() => 0)
  for (let us = 0; us < toSeconds * 1e6; us += 10_000) {
    const row = draw.take(us)
    if (us >= fromSeconds * 1e6) counts[domainOf[row]!]!++
    draw.release(row)
  }
  const total = counts.reduce((a, b) => a + b)
  return counts.map(count => count / total)
}

describe('a burst', () => {
  const burst: MixSpec = { kind: 'burst', domain: 'math', fromSeconds: 20, toSeconds: 80 }

  it('has one domain alone from its start to its end, and the mix of the trace before and after', () => {
    expect(drawn(burst, 20, 80)).toEqual([0, 0, 1, 0])
    for (const mix of [drawn(burst, 0, 20), drawn(burst, 80, 110)])
      mix.forEach((share, d) => expect(Math.abs(share - shares[d]!)).toBeLessThan(0.05))
  })

  it('starts and ends at its times and not beside them', () => {
    expect(drawn(burst, 79.99, 80)).toEqual([0, 0, 1, 0])
    expect(mixWeights(burst, domains, shares)(80)).toEqual(shares)
    expect(mixWeights(burst, domains, shares)(19.99)).toEqual(shares)
  })

  it('of a domain that the trace does not have is refused', () => {
    for (const domain of ['none', 'other'])
      expect(() => mixWeights({ ...burst, domain }, domains, shares)).toThrow(/no request of domain/)
  })

  it('draws the same domains whatever is in flight, so that policies see the same traffic', () => {
    const [held, released] = [0, 1].map(() =>
      createMixDraw({ spec: burst, domains, domainOf }, createRandom(3)),
    )
    for (let us = 0; us < 30e6; us += 50_000) {
      const row = released!.take(us)
      expect(domainOf[held!.take(us)]).toBe(domainOf[row])
      released!.release(row)
    }
  })
})

describe('a rotation', () => {
  const day: MixSpec = { kind: 'rotation', daySeconds: 100 }

  it('gives every domain the largest share around its own part of the day', () => {
    const largest = (from: number, to: number) => {
      const mix = drawn(day, from, to)
      return mix.indexOf(Math.max(...mix))
    }
    expect([largest(20, 30), largest(60, 70), largest(87, 93)]).toEqual([0, 1, 2])
    expect(drawn(day, 20, 30)[0]).toBeGreaterThan(0.7)
    expect(drawn(day, 70, 80)[0]).toBeLessThan(0.02)
  })

  it('repeats after a day', () => {
    const weights = mixWeights(day, domains, shares)
    weights(30).forEach((weight, d) => expect(weight).toBeCloseTo(weights(130)[d]!, 9))
  })
})
