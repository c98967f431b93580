import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createRandom } from '../../math/random.ts'
import { SignatureCache, signatureMemory } from './signature-cache.ts'

const model = { layers: 2, experts: 5, topK: 2 }

/** Tokens with random experts, stored both in a cache with shuffled blocks and in lists. */
function madeUp(blockTokens: number, tokens: number, seed: number, halfLife: number) {
  const random = createRandom(seed)
  const count = Math.ceil(tokens / blockTokens)
  const blocks = Int32Array.from({ length: count }, (_, i) => count - 1 - i)
  const cache = new SignatureCache(model, count, blockTokens, halfLife)
  const chosen = Array.from({ length: tokens }, () => {
    const experts = Array.from({ length: model.layers }, () => {
      const first = random.below(model.experts)
      return [first, (first + 1 + random.below(model.experts - 1)) % model.experts]
    })
    return Uint16Array.from(experts.flat())
  })
  const put = (token: number) =>
    cache.put(blocks[Math.floor(token / blockTokens)]!, token % blockTokens, chosen[token]!, 0)
  return { cache, blocks, chosen, put }
}

describe('a signature cache', () => {
  it('sums the rows of a sequence to the exact counts, for any length and block size', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 40 }),
        fc.integer({ min: 1, max: 90 }),
        fc.nat(),
        fc.nat({ max: 90 }),
        (blockTokens, tokens, seed, cut) => {
          const { cache, blocks, chosen, put } = madeUp(blockTokens, tokens, seed, 7)
          for (let token = 0; token < tokens; token++) put(token)
          const length = Math.max(1, tokens - cut)
          const counts = new Uint32Array(10)
          const recent = new Float64Array(10)
          for (let token = 0; token < length; token++) {
            chosen[token]!.forEach((expert, i) => {
              const cell = Math.floor(i / model.topK) * model.experts + expert
              counts[cell]!++
              recent[cell]! += 2 ** (-(length - 1 - token) / 7)
            })
          }
          const sum = cache.sum(blocks, length)
          expect(sum).toMatchObject({ ...model, tokens: length, covered: length, counts, halfLife: 7 })
          sum.recent!.forEach((value, c) => expect(value).toBeCloseTo(recent[c]!, 10))
        },
      ),
    )
  })

  it('counts a recomputed token once', () => {
    const { cache, blocks, put } = madeUp(4, 6, 1, 7)
    for (const token of [0, 1, 2, 3, 4, 5, 5]) put(token)
    expect(cache.sum(blocks, 6).counts.reduce((a, b) => a + b)).toBe(6 * model.layers * model.topK)
  })

  it('reports how many tokens are covered: received blocks have none', () => {
    const { cache, blocks, put } = madeUp(4, 10, 1, 7)
    for (const token of [8, 9]) put(token)
    expect(cache.sum(blocks, 10)).toMatchObject({ tokens: 10, covered: 2 })
    expect(cache.sum(blocks, 9)).toMatchObject({ tokens: 9, covered: 1 })
  })

  it('zeroes the row of a block that lost its content', () => {
    const { cache, put } = madeUp(20, 40, 3, 7)
    for (let token = 0; token < 40; token++) put(token)
    expect(cache.used).toBe(2)
    cache.reset(1)
    expect([cache.used, cache.isZero(0), cache.isZero(1)]).toEqual([1, false, true])
  })

  it('has no recent counts without a half-life', () => {
    expect(new SignatureCache(model, 1, 4).sum([0], 3)).toEqual({
      ...model,
      tokens: 3,
      covered: 0,
      counts: new Uint32Array(10),
    })
  })

  it('takes less than 1 % of the size of the KV, with counts and recent counts', () => {
    const qwen3 = { layers: 48, experts: 128, topK: 8 }
    const { rowBytes, kvBytes, share } = signatureMemory(qwen3, 16, {
      layers: 48,
      heads: 4,
      headWidth: 128,
      bytes: 2,
    })
    expect([rowBytes, kvBytes]).toEqual([2 * (48 * 128 + 1), 16 * 98_304])
    expect(share).toBeLessThan(0.008)
    expect(new SignatureCache(qwen3, 3, 16).bytes).toBe(3 * rowBytes)
  })
})
