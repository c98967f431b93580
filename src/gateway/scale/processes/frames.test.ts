import { describe, expect, it } from 'vitest'
import { createRandom } from '../../../math/random.ts'
import { type Frame, FrameReader, FrameWriter } from './frames.ts'
import { ASK, TELL } from './messages.ts'

/** All frames read from bytes that arrive in chunks of these sizes. */
function read(bytes: Buffer, sizes: () => number): Frame[] {
  const [reader, frames] = [new FrameReader(), [] as Frame[]]
  for (let at = 0; at < bytes.length;) {
    const size = sizes()
    reader.push(Buffer.from(bytes.subarray(at, at + size)), frame => frames.push(frame))
    at += size
  }
  return frames
}

describe('frames', () => {
  it('are read as they were written, however the bytes are split', () => {
    const writer = new FrameWriter()
    const blob = Buffer.alloc(50_000, 7)
    for (let n = 0; n < 40; n++) {
      const to = writer
        .begin(n, 0xffff_fff0 + (n % 8))
        .byte(n)
        .number(n / 3)
        .text(`Zoë ${'é'.repeat(n)}`)
        .bytes(n === 20 ? blob : Buffer.alloc(0))
      to.texts(new Set(['a', `b${n}`])).end()
    }
    const bytes = writer.take()
    expect(writer.isEmpty).toBe(true)
    const random = createRandom(1)
    for (const sizes of [() => 1, () => bytes.length, () => 1 + Math.floor(random.uniform() * 300)]) {
      const frames = read(bytes, sizes)
      expect(frames).toHaveLength(40)
      for (const [n, frame] of frames.entries()) {
        expect([frame.kind, frame.id, frame.byte(), frame.number(), frame.text()]).toEqual([
          n,
          0xffff_fff0 + (n % 8),
          n,
          n / 3,
          `Zoë ${'é'.repeat(n)}`,
        ])
        expect(frame.bytes().equals(n === 20 ? blob : Buffer.alloc(0))).toBe(true)
        expect([...frame.texts()]).toEqual(['a', `b${n}`])
      }
    }
  })

  it('throw if their length is invalid, or if they are shorter than what is read', () => {
    const writer = new FrameWriter()
    writer.begin(1, 2).byte(3).end()
    const [frame] = read(writer.take(), () => 100)
    expect(frame!.byte()).toBe(3)
    expect(() => frame!.byte()).toThrow(RangeError)
    expect(() => frame!.number()).toThrow(RangeError)
    writer.begin(1, 2).number(0).end()
    const corrupt = writer.take()
    corrupt.writeUInt32LE(1_000, 9)
    expect(() => read(corrupt, () => 100)[0]!.bytes()).toThrow(RangeError)
    for (const length of [0, 4, 0xffff_ffff]) {
      const bytes = Buffer.alloc(20)
      bytes.writeUInt32LE(length, 0)
      expect(() => read(bytes, () => 20), String(length)).toThrow(RangeError)
    }
  })
})

describe('kinds of frames', () => {
  it.each([
    ['to the owner', ASK],
    ['to a relay', TELL],
  ])('%s have different numbers', (_, kinds) => {
    const numbers = Object.values(kinds)
    expect(new Set(numbers).size).toBe(numbers.length)
  })
})
