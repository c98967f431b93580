import { describe, expect, it } from 'vitest'
import { enginePaces } from './engine-paces.ts'

describe('paces of engines', () => {
  it('are those of the fullest and the emptiest engine of each run', () => {
    const first = { worker: [0, 1, 0, 1], batch: [10, 30, 12, 30], ms: [5, 9, 6, 8], experts: [1, 1, 1, 1] }
    const swapped = { worker: [0, 1], batch: [32, 11], ms: [10, 4], experts: [1, 1] }
    const empty = { worker: [], batch: [], ms: [], experts: [] }
    const { fullest, emptiest } = enginePaces([{ steps: first }, { steps: swapped }, { steps: empty }, {}])
    expect([...fullest.ms]).toEqual([8, 9, 10])
    expect([...emptiest.ms]).toEqual([4, 5, 6])
    expect(fullest.batch).toBeCloseTo(92 / 3)
    expect(emptiest.batch).toBe(11)
  })
})
