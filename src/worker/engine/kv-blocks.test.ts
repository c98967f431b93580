import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { chainHash, chainRoot, KvBlocks } from './kv-blocks.ts'

const root = chainRoot('')
const ids = (...tokens: number[]) => Int32Array.from(tokens)
const hashOf = (...tokens: number[]) => chainHash(root, ids(...tokens), 0, tokens.length)

describe('a pool of KV blocks', () => {
  it('allocates every block once, never used ones first', () => {
    const pool = new KvBlocks(3, 2)
    expect([pool.take(), pool.take(), pool.take()]).toEqual([0, 1, 2])
    expect(pool.free).toBe(0)
    expect(() => pool.take()).toThrow('no free block')
  })

  it('finds a full block by its chain hash, even if it is unreferenced', () => {
    const pool = new KvBlocks(2, 2)
    const block = pool.take()
    pool.remember(block, hashOf(5, 6))
    pool.giveBack(block)
    expect(pool.free).toBe(2)
    expect(pool.find(hashOf(5, 6))).toBe(block)
    pool.share(block)
    expect([pool.free, pool.references(block)]).toEqual([1, 1])
  })

  it('evicts the least recently used block, and reuses blocks without content first', () => {
    const emptied: number[] = []
    const pool = new KvBlocks(3, 1, block => emptied.push(block))
    const [a, b, c] = [pool.take(), pool.take(), pool.take()]
    pool.remember(a, hashOf(1))
    pool.remember(b, hashOf(2))
    for (const block of [a, b, c]) pool.giveBack(block)
    expect(emptied).toEqual([c])
    pool.share(a) // used again: now b is the oldest
    pool.giveBack(a)
    expect(pool.take()).toBe(c)
    expect(pool.take()).toBe(b)
    expect([pool.find(hashOf(1)), pool.find(hashOf(2))]).toEqual([a, undefined])
    expect(emptied).toEqual([c, b])
  })

  it('caches only the first of two blocks with the same content', () => {
    const pool = new KvBlocks(2, 1)
    const [first, second] = [pool.take(), pool.take()]
    pool.remember(first, hashOf(1))
    pool.remember(second, hashOf(1))
    expect([pool.find(hashOf(1)), pool.isCached(second), pool.cached]).toEqual([first, false, 1])
  })

  it('clears the cache only when no block is in use', () => {
    const pool = new KvBlocks(2, 1)
    const block = pool.take()
    pool.remember(block, hashOf(1))
    expect(pool.reset()).toBe(false)
    pool.giveBack(block)
    expect(pool.reset()).toBe(true)
    expect([pool.cached, pool.find(hashOf(1))]).toEqual([0, undefined])
  })

  it('never loses a block, allocates one twice, or finds an evicted one', () => {
    fc.assert(
      fc.property(fc.array(fc.nat({ max: 999 }), { maxLength: 200 }), moves => {
        const pool = new KvBlocks(5, 1)
        /** Reference model: references by block, content by hash. */
        const held: number[] = []
        for (const move of moves) {
          const token = Math.floor(move / 3) % 7
          const found = pool.find(hashOf(token))
          if (move % 3 === 0 && held.length > 0) pool.giveBack(held.splice(token % held.length, 1)[0]!)
          else if (found !== undefined) {
            pool.share(found)
            held.push(found)
          } else if (pool.free > 0) {
            const block = pool.take()
            if (token > 0) pool.remember(block, hashOf(token))
            held.push(block)
          }
          expect(pool.free).toBe(5 - new Set(held).size)
          for (let block = 0; block < 5; block++)
            expect(pool.references(block)).toBe(held.filter(other => other === block).length)
        }
      }),
    )
  })
})

describe('the hash of a chain', () => {
  it('depends on every token, on the parent and on the salt', () => {
    const hashes = [
      hashOf(1, 2),
      hashOf(2, 1),
      hashOf(1, 2, 0),
      chainHash(hashOf(1), ids(2), 0, 1),
      chainHash(chainRoot('row 3'), ids(1, 2), 0, 2),
    ]
    expect(new Set(hashes).size).toBe(hashes.length)
    expect(chainHash(root, ids(9, 1, 2, 9), 1, 3)).toBe(hashOf(1, 2))
  })
})
