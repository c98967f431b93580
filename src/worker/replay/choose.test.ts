import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { chancesOf, chooseExperts } from './choose.ts'
import { follow, rootOf } from './fingerprint.ts'

/** Counts over this many tokens, drawn one after the other. */
function draw(counts: readonly number[], layers: number, topK: number, tokens: number): Uint32Array {
  const experts = counts.length / layers
  const chances = chancesOf(counts, layers, experts, topK)
  const drawn = new Uint32Array(counts.length)
  const chosen = new Uint16Array(layers * topK)
  const token = rootOf('a test')
  for (let t = 0; t < tokens; t++) {
    follow(token, 0, t, token, 0)
    chooseExperts(chances, token[0]!, token[1]!, chosen)
    chosen.forEach((expert, i) => drawn[Math.floor(i / topK) * experts + expert]!++)
  }
  return drawn
}

describe('experts of a prompt’s tokens', () => {
  it('are drawn as often as in the row', () => {
    const counts = [100, 80, 10, 5, 5, 0, 60, 60, 60, 10, 10, 0] // 100 tokens of 2 experts, in two layers
    const drawn = draw(counts, 2, 2, 10_000)
    drawn.forEach((count, cell) => expect(Math.abs(count - 100 * counts[cell]!)).toBeLessThan(150))
    expect([drawn[0], drawn[5], drawn[11]]).toEqual([10_000, 0, 0])
  })

  it('are top_k different ones in every layer, for any counts', () => {
    const shapes = fc.integer({ min: 1, max: 9 }).chain(experts =>
      fc.record({
        counts: fc.array(fc.oneof(fc.constant(0), fc.nat({ max: 65_535 })), {
          minLength: 2 * experts,
          maxLength: 2 * experts,
        }),
        topK: fc.integer({ min: 1, max: experts }),
      }),
    )
    fc.assert(
      fc.property(shapes, ({ counts, topK }) => {
        const experts = counts.length / 2
        const drawn = draw(counts, 2, topK, 20)
        for (const layer of [0, 1]) {
          const own = drawn.subarray(layer * experts, (layer + 1) * experts)
          expect(own.reduce((a, b) => a + b)).toBe(20 * topK)
          expect(Math.max(...own)).toBeLessThanOrEqual(20)
          const named = counts.slice(layer * experts, (layer + 1) * experts).map(count => count > 0)
          const enough = named.filter(Boolean).length >= topK
          expect(enough && own.some((count, e) => count > 0 && !named[e])).toBe(false)
        }
      }),
    )
  })

  it('differ between layers and between tokens', () => {
    const even = Array.from({ length: 64 * 8 }, () => 1)
    const chances = chancesOf(even, 64, 8, 1)
    const [one, other] = [new Uint16Array(64), new Uint16Array(64)]
    chooseExperts(chances, 1, 2, one)
    chooseExperts(chances, 1, 3, other)
    expect(new Set(one).size).toBe(8)
    expect(one).not.toEqual(other)
  })
})

describe('fingerprints', () => {
  it('do not collide, and depend on the order of all preceding tokens', () => {
    const seen = new Set<string>()
    for (let a = 0; a < 200; a++) {
      for (let b = 0; b < 200; b++) {
        const token = rootOf('')
        follow(token, 0, a, token, 0)
        follow(token, 0, b, token, 0)
        seen.add(token.join())
      }
    }
    expect(seen.size).toBe(200 * 200)
  })
})
