import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  FRAME,
  type Frame,
  FrameError,
  type FrameName,
  frameOf,
  FrameReader,
  HEAD_BYTES,
  headOf,
  objectIn,
  textFrame,
} from './frames.ts'

const frame = fc.record({
  type: fc.constantFrom(...(Object.keys(FRAME) as FrameName[])),
  payload: fc.uint8Array({ maxLength: 300 }).map(bytes => Buffer.from(bytes)),
})

function cut(bytes: Buffer, at: readonly number[]): Buffer[] {
  const places = [0, ...at.map(place => place % (bytes.length + 1)).toSorted((a, b) => a - b), bytes.length]
  return places.slice(1).map((end, i) => bytes.subarray(places[i], end))
}

describe('frames of the KV side channel', () => {
  it('are read as they were written, wherever the stream is split', () => {
    fc.assert(
      fc.property(
        fc.array(frame, { maxLength: 8 }),
        fc.array(fc.nat(), { maxLength: 20 }),
        (frames, places) => {
          const reader = new FrameReader(300)
          const bytes = Buffer.concat(frames.map(({ type, payload }) => frameOf(type, payload)))
          const read: Frame[] = cut(bytes, places).flatMap(chunk => [...reader.push(chunk)])
          expect(read).toEqual(frames)
          expect(reader.isIncomplete).toBe(false)
        },
      ),
    )
  })

  it('are refused and never misread if any single byte is changed', () => {
    fc.assert(
      fc.property(frame, fc.nat(), fc.integer({ min: 1, max: 255 }), ({ type, payload }, place, by) => {
        const bytes = frameOf(type, payload)
        const at = place % bytes.length
        bytes[at]! ^= by
        const reader = new FrameReader(300)
        const read = () => [...reader.push(bytes)]
        // A changed type may be another valid type, the unused bytes are ignored, and a longer frame is
        // waited for.
        if (at >= 5 && at <= 11) return
        expect(read).toThrow(FrameError)
      }),
    )
  })

  it('cannot make a reader throw anything else or buffer more than one frame', () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 64 }), { maxLength: 10 }), chunks => {
        const reader = new FrameReader(100)
        const readAll = () => {
          try {
            return chunks
              .flatMap(chunk => [...reader.push(Buffer.from(chunk))])
              .every(({ payload }) => payload.length <= 100)
          } catch (error) {
            return error instanceof FrameError
          }
        }
        expect(readAll()).toBe(true)
      }),
    )
  })

  it('that are too long are refused when their header arrives', () => {
    const head = headOf('data', Buffer.alloc(101))
    expect(head.length).toBe(HEAD_BYTES)
    expect(() => [...new FrameReader(100).push(head)]).toThrow('a data frame of 101 bytes is too long')
  })

  it('of another version are refused with both versions named', () => {
    const bytes = textFrame('read', {})
    bytes[4] = 9
    expect(() => [...new FrameReader(100).push(bytes)]).toThrow('the peer uses version 9, this worker 1')
  })

  it('have JSON objects as text payloads', () => {
    expect(objectIn({ type: 'read', payload: Buffer.from('{"a":1}') })).toEqual({ a: 1 })
    for (const text of ['', '[]', 'null', '5', '{"a":'])
      expect(() => objectIn({ type: 'read', payload: Buffer.from(text) })).toThrow(FrameError)
  })
})
