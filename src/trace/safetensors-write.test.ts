import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import * as fc from 'fast-check'
import { afterAll, describe, expect, it } from 'vitest'
import { bytesOf, temporaryFolder } from '../../test/trace-support.ts'
import { bytesPer, type Dtype, DTYPES, viewAs } from './dtype.ts'
import { withSafetensors } from './safetensors-file.ts'
import { parseHeader } from './safetensors-header.ts'
import { type TensorToWrite, writeSafetensors } from './safetensors-write.ts'

const folder = temporaryFolder()
afterAll(folder.remove)
const path = join(folder.path, 'a.safetensors')

/** Any tensor, with any bytes as values. */
const tensor = fc
  .tuple(
    fc.constantFrom(...(Object.keys(DTYPES) as Dtype[])),
    fc.array(fc.integer({ min: 0, max: 4 }), { maxLength: 3 }),
    fc.infiniteStream(fc.nat(255)),
  )
  .map(([dtype, shape, bytes]): TensorToWrite => {
    const length = shape.reduce((product, size) => product * size, bytesPer(dtype))
    const buffer = new ArrayBuffer(length)
    new Uint8Array(buffer).set([...bytes.take(length)])
    return { dtype, shape, data: viewAs(dtype, buffer) }
  })
const name = fc
  .string({ unit: 'grapheme', maxLength: 5 })
  .filter(text => text !== '__metadata__' && text !== '__proto__')

describe('writeSafetensors', () => {
  it('writes files that read back as the same tensors and metadata', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.dictionary(name, tensor, { maxKeys: 5 }),
        fc.dictionary(name, fc.string({ unit: 'grapheme' })),
        async (tensors, metadata) => {
          await writeSafetensors(path, { metadata, tensors })
          await withSafetensors(path, async file => {
            expect({ ...file.metadata }).toEqual({ ...metadata })
            expect([...file.tensors.keys()].sort()).toEqual(Object.keys(tensors).sort())
            for (const [key, { dtype, shape, data }] of Object.entries(tensors)) {
              expect(file.info(key)).toMatchObject({ dtype, shape })
              expect(bytes(await file.read(key))).toEqual(bytes(data as ArrayBufferView))
            }
          })
        },
      ),
      { numRuns: 60 },
    )
  })

  it('gives the same bytes for the same tensors in any order', async () => {
    await fc.assert(
      fc.asyncProperty(fc.dictionary(name, tensor, { maxKeys: 5 }), async tensors => {
        const reversed = Object.fromEntries(Object.entries(tensors).toReversed())
        expect((await bytesOf({ tensors })).equals(await bytesOf({ tensors: reversed }))).toBe(true)
      }),
      { numRuns: 60 },
    )
  })

  it('aligns each tensor to its element size and the data to 8 bytes', async () => {
    await fc.assert(
      fc.asyncProperty(fc.dictionary(name, tensor, { maxKeys: 5 }), async tensors => {
        const encoded = await bytesOf({ metadata: { k: 'v' }, tensors })
        const header = parseHeader(encoded, encoded.length, path)
        expect(header.dataOffset % 8).toBe(0)
        for (const { dtype, begin } of header.tensors.values()) expect(begin % bytesPer(dtype)).toBe(0)
      }),
      { numRuns: 60 },
    )
  })

  it('keeps metadata in the given order, before the tensors', async () => {
    const text = (await bytesOf({ metadata: { z: '1', a: '2' }, tensors: { '1': u8([7]) } }))
      .subarray(8)
      .toString('latin1')
    expect(
      text.startsWith(
        '{"__metadata__":{"z":"1","a":"2"},"1":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
      ),
    ).toBe(true)
    expect((await bytesOf({ metadata: {}, tensors: {} })).subarray(8).toString()).toBe('{}      ')
  })

  it('accepts data in pieces, and a view into a larger buffer', async () => {
    const whole = await bytesOf({
      tensors: { a: { dtype: 'U16', shape: [3], data: new Uint16Array([1, 2, 3]) } },
    })
    expect(await bytesOf({ tensors: { a: { dtype: 'U16', shape: [3], data: pieces() } } })).toEqual(whole)
  })

  it('rejects data that do not match their shape or type, and keeps the old file', async () => {
    await writeSafetensors(path, { tensors: { a: u8([1]) } })
    const before = readFileSync(path)
    const wrong: TensorToWrite[] = [
      { dtype: 'U8', shape: [2], data: new Uint8Array(3) },
      { dtype: 'U8', shape: [2], data: [new Uint8Array(1)] },
      { dtype: 'U8', shape: [2], data: [new Uint8Array(2), new Uint8Array(1)] },
      { dtype: 'F32', shape: [1], data: new Uint32Array(1) },
      { dtype: 'U8', shape: [-1, -1], data: new Uint8Array(1) },
      { dtype: 'U8', shape: [0.5, 2], data: new Uint8Array(1) },
    ]
    for (const a of wrong)
      await expect(writeSafetensors(path, { tensors: { a } })).rejects.toThrow(RangeError)
    await expect(writeSafetensors(path, { tensors: { __metadata__: u8([1]) } })).rejects.toThrow(RangeError)
    expect(readFileSync(path)).toEqual(before)
    expect(readdirSync(folder.path)).toEqual(['a.safetensors'])
  })

  it('keeps the old file and leaves no other if a source fails half-way', async () => {
    await writeSafetensors(path, { tensors: { a: u8([1]) } })
    const before = readFileSync(path)
    const writing = writeSafetensors(path, {
      tensors: { a: { dtype: 'U8', shape: [2_000_000], data: broken() } },
    })
    await expect(writing).rejects.toThrow('the capture broke')
    expect(readFileSync(path)).toEqual(before)
    expect(readdirSync(folder.path)).toEqual(['a.safetensors'])
  })
})

function u8(values: number[]): TensorToWrite {
  return { dtype: 'U8', shape: [values.length], data: new Uint8Array(values) }
}

function bytes(view: ArrayBufferView): Buffer {
  return Buffer.from(view.buffer, view.byteOffset, view.byteLength)
}

async function* pieces() {
  yield new Uint16Array([1, 2])
  yield new Uint16Array(0)
  yield new Uint16Array([9, 3, 9]).subarray(1, 2)
}

function* broken() {
  yield new Uint8Array(1_000_000)
  throw new Error('the capture broke')
}
