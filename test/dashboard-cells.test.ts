/** Tests the parts of the dashboard that need no browser. */
import { describe, expect, it } from 'vitest'
import {
  activePerLayer,
  againstOthers,
  meanOf,
  overlap,
  unpackBits,
  unpackBytes,
} from '../dashboard/cells.ts'
import { EventReader } from '../dashboard/server-events.ts'

describe('experts of workers', () => {
  it('are decoded from bits, the lowest first, and from 255ths', () => {
    expect([...unpackBits(Buffer.from([0b0000_0101, 0b1000_0000]).toString('base64'), 16)]).toEqual([
      1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
    ])
    expect(
      [...unpackBytes(Buffer.from([0, 255, 51]).toString('base64'), 3)].map(share =>
        Number(share.toFixed(3)),
      ),
    ).toEqual([0, 1, 0.2])
  })

  it('are compared with the mean of the others', () => {
    const all = [Float32Array.of(1, 0, 0.5), Float32Array.of(1, 1, 0), Float32Array.of(0, 1, 0)]
    expect([...againstOthers(all, 0)]).toEqual([0.5, -1, 0.5])
    expect([...againstOthers([all[0]!], 0)]).toEqual([...all[0]!])
    expect([...meanOf(all.slice(0, 2), 3)]).toEqual([1, 0.5, 0.25])
  })

  it('overlap by the share that both use of those that either uses', () => {
    expect(overlap(Float32Array.of(1, 1, 0), Float32Array.of(1, 0, 1))).toBeCloseTo(1 / 3)
    expect(overlap(Float32Array.of(0, 0), Float32Array.of(0, 0))).toBeUndefined()
    expect(activePerLayer(Float32Array.of(1, 0, 1, 1), 2)).toBe(1.5)
  })
})

describe('server-sent events', () => {
  it('are complete however the text is split, and comments are ignored', () => {
    const text = 'retry: 2000\nevent: hello\ndata: {"a":1}\n\n:\n\nevent: pulse\ndata: {"b":"x: y"}\n\n'
    for (let size = 1; size < text.length; size++) {
      const reader = new EventReader()
      const events = []
      for (let at = 0; at < text.length; at += size) events.push(...reader.push(text.slice(at, at + size)))
      expect(events).toEqual([
        { event: 'hello', data: '{"a":1}' },
        { event: 'pulse', data: '{"b":"x: y"}' },
      ])
    }
  })
})
