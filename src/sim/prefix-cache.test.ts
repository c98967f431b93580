import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { PrefixCache } from './prefix-cache.ts'

describe('the prefix cache', () => {
  it('finds the leading blocks that it has seen, and none past a gap', () => {
    const cache = new PrefixCache(10)
    cache.insert([1, 2, 3])
    expect(cache.match([1, 2, 3, 4])).toBe(3)
    expect(cache.match([1, 9, 3])).toBe(1)
    expect(cache.match([2, 3])).toBe(2)
    expect(cache.match([9])).toBe(0)
    expect(cache.match([])).toBe(0)
  })

  it('evicts the least recently used, the tail of a prompt before its head', () => {
    const cache = new PrefixCache(4)
    cache.insert([1, 2, 3])
    cache.insert([7])
    expect(cache.match([1, 2, 3])).toBe(3)
    cache.insert([8]) // 7 is evicted: the others were just used
    expect(cache.match([7])).toBe(0)
    cache.insert([9])
    expect(cache.match([1, 2, 3])).toBe(2)
  })

  it('keeps nothing if it has no room', () => {
    const cache = new PrefixCache(0)
    cache.insert([1])
    expect(cache.match([1])).toBe(0)
  })

  it('never exceeds its capacity, and always has the latest blocks if they fit', () => {
    const prompts = fc.array(fc.array(fc.nat({ max: 30 }), { minLength: 1, maxLength: 6 }), {
      minLength: 1,
      maxLength: 40,
    })
    fc.assert(
      fc.property(fc.integer({ min: 6, max: 20 }), prompts, (capacity, list) => {
        const cache = new PrefixCache(capacity)
        for (const prompt of list) {
          cache.insert(prompt)
          expect(cache.size).toBeLessThanOrEqual(capacity)
          expect(cache.match(prompt)).toBe(prompt.length)
        }
      }),
    )
  })
})
