import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { EldrError } from '../errors.ts'
import { costPerMillionTokens, gpusOf, parseTopology, topologyText } from './topology.ts'

describe('a topology', () => {
  it.each([
    ['8P16D', { prefill: 8, decode: 16, ranks: 1 }, 24],
    ['16D', { prefill: 0, decode: 16, ranks: 1 }, 16],
    ['2P8D×EP4', { prefill: 2, decode: 8, ranks: 4 }, 40],
    ['2p8dxep4', { prefill: 2, decode: 8, ranks: 4 }, 40],
    ['1P4D/4', { prefill: 1, decode: 4, ranks: 1, perDevice: 4 }, 2],
    ['5D/2', { prefill: 0, decode: 5, ranks: 1, perDevice: 2 }, 3],
    ['8D/1', { prefill: 0, decode: 8, ranks: 1 }, 8],
  ])('%s is parsed, and has its number of GPUs', (text, topology, gpus) => {
    expect(parseTopology(text)).toEqual(topology)
    expect(gpusOf(topology)).toBe(gpus)
  })

  it('costs its GPU-hours divided by the tokens generated in them', () => {
    const hours = 1e6 / 2_000 / 3_600 // for a million tokens at 2,000 per second
    expect(costPerMillionTokens(parseTopology('2P8D×EP4'), 2.5, 2_000)).toBeCloseTo(40 * 2.5 * hours, 9)
  })

  it('parses what it formats', () => {
    const topologies = fc.record({
      prefill: fc.nat({ max: 64 }),
      decode: fc.integer({ min: 1, max: 64 }),
      ranks: fc.integer({ min: 1, max: 8 }),
    })
    fc.assert(
      fc.property(topologies, topology => {
        expect(parseTopology(topologyText(topology))).toEqual(topology)
        if (topology.decode === 1) return
        const shared = { ...topology, ranks: 1, perDevice: topology.decode }
        expect(parseTopology(topologyText(shared))).toEqual(shared)
      }),
    )
  })

  it.each([
    ['', 'such as 8P16D'],
    ['8P', 'such as 8P16D'],
    ['16D8P', 'such as 8P16D'],
    ['8P16DxTP4', 'such as 8P16D'],
    ['-1D', 'such as 8P16D'],
    ['0P16D', 'at least 1 prefill worker'],
    ['8P0D', 'at least 1 decode worker'],
    ['2P8DxEP0', 'at least 1 rank'],
    ['9999D', 'at most 4096 workers'],
    ['8DxEP999', 'at most 512 ranks'],
    ['4D/0', '1 to 4 decode workers on a GPU'],
    ['4D/5', '1 to 4 decode workers on a GPU'],
    ['8DxEP4/2', 'such as 8P16D'],
  ])('%j is rejected with the reason', (text, expected) => {
    expect(() => parseTopology(text)).toThrow(EldrError)
    expect(() => parseTopology(text)).toThrow(expected)
    expect(() => parseTopology(text)).toThrow('[ELDR_USAGE]')
  })
})
