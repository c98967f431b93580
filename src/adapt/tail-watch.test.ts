import { describe, expect, it } from 'vitest'
import { createRandom, type Random } from '../math/random.ts'
import { compareTails, LOOKS } from './tail-watch.ts'

/** TPOTs of streams: log-normal, and alike within a moment, as streams that share batches are. */
function streams(count: number, random: Random, scale = 1): number[] {
  const normal = () =>
    Math.sqrt(-2 * Math.log(1 - random.uniform())) * Math.cos(2 * Math.PI * random.uniform())
  let moment = 0
  return Array.from({ length: count }, (_, at) => {
    if (at % 10 === 0) moment = 0.08 * normal()
    return scale * 20 * Math.exp(moment + 0.1 * normal())
  })
}

/** Runs in which any look finds the tail worse, of 100 times `hundreds`. */
const worseIn = (hundreds: number, scale: number) =>
  Array.from({ length: 100 * hundreds }, (_, seed) => {
    const random = createRandom(seed)
    const [before, after] = [streams(1_200, random), streams(1_200, random, scale)]
    return LOOKS.some(count => compareTails(before, after.slice(0, count))!.isWorse)
  }).filter(Boolean).length

describe('the comparison of tails', () => {
  it('calls equal tails worse at most once in a hundred swaps, over all looks', () => {
    expect(worseIn(10, 1)).toBeLessThanOrEqual(10)
  })

  it('finds a tail that is 15 % worse, and never one that is better', () => {
    expect(worseIn(1, 1.15)).toBeGreaterThanOrEqual(95)
    expect(worseIn(1, 0.9)).toBe(0)
  })

  it('says nothing about few streams, and shows both p99', () => {
    const random = createRandom(1)
    expect(compareTails(streams(100, random), streams(400, random))).toBeUndefined()
    const same = streams(1_000, random)
    expect(compareTails(same, same)).toMatchObject({ isWorse: false })
    expect(compareTails(same, same)!.before).toBe(compareTails(same, same)!.after)
  })
})
