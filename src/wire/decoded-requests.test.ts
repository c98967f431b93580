import { describe, expect, it } from 'vitest'
import { encodeDecoded, readDecoded } from './decoded-requests.ts'

const SHAPE = { layers: 2, experts: 3 }
const request = { id: 'a', steps: 300, counts: Uint16Array.of(300, 0, 1, 2, 256, 42) }
const body = { ...SHAPE, last: 7, requests: [encodeDecoded(request)] }

describe('decoded requests', () => {
  it('are read as they were written', () => {
    expect(readDecoded(JSON.parse(JSON.stringify(body)), SHAPE)).toEqual({ last: 7, requests: [request] })
  })

  it('are refused whole if they are of another model or not of this form', () => {
    for (const bad of [
      undefined,
      null,
      3,
      {},
      { ...body, layers: 3 },
      { ...body, experts: 4 },
      { ...body, last: -1 },
      { ...body, last: 1.5 },
      { ...body, requests: {} },
    ])
      expect(readDecoded(bad, SHAPE)).toBeUndefined()
  })

  it('leave out a request that contradicts itself', () => {
    const [good] = body.requests
    const bad = [
      null,
      {},
      { ...good, id: 1 },
      { ...good, steps: 0 },
      { ...good, steps: 299 }, // an expert that fired in more steps than there were
      { ...good, steps: 70_000 },
      { ...good, counts: 'AAAA' },
      { ...good, counts: '!'.repeat(good!.counts.length) },
    ]
    expect(readDecoded({ ...body, requests: [...bad, good] }, SHAPE)?.requests).toEqual([request])
  })
})
