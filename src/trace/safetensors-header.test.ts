import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { failure, rawFile } from '../../test/trace-support.ts'
import { parseHeader } from './safetensors-header.ts'

const FILE = 'some/where.safetensors'
const parse = (bytes: Uint8Array) => parseHeader(bytes, bytes.length, FILE)
const entry = (dtype: string, shape: string, offsets: string) =>
  `{"dtype":"${dtype}","shape":${shape},"data_offsets":${offsets}}`
const two = entry('U8', '[2]', '[0,2]') // a tensor of two bytes
const data = new Uint8Array(2)
/** JSON may spell any UTF-16 unit as an escape. */
const escaped = (text: string) =>
  Array.from(
    { length: text.length },
    (_, i) => `\\u${text.charCodeAt(i).toString(16).padStart(4, '0')}`,
  ).join('')

describe('parseHeader', () => {
  it('finds tensors in byte order, and metadata', () => {
    const header = `{"b":${entry('U16', '[1,2]', '[3,7]')},"__metadata__":{"k":"v"},"a":${entry('I8', '[3]', '[0,3]')}}  `
    const { metadata, tensors, dataOffset } = parse(rawFile(header, new Uint8Array(7)))
    expect(dataOffset).toBe(8 + header.length)
    expect(metadata).toEqual({ k: 'v' })
    expect([...tensors.values()]).toEqual([
      { name: 'a', dtype: 'I8', shape: [3], begin: dataOffset, end: dataOffset + 3 },
      { name: 'b', dtype: 'U16', shape: [1, 2], begin: dataOffset + 3, end: dataOffset + 7 },
    ])
  })

  it('allows no tensors, scalars, and tensors without elements at either end of another', () => {
    expect(parse(rawFile('{}')).tensors.size).toBe(0)
    expect(
      parse(rawFile(`{"s":${entry('F64', '[]', '[0,8]')}}`, new Uint8Array(8))).tensors.get('s')?.shape,
    ).toEqual([])
    const empty = (at: number) => entry('F32', '[7,0]', `[${at},${at}]`)
    expect(parse(rawFile(`{"z":${empty(2)},"a":${two},"y":${empty(0)}}`, data)).tensors.size).toBe(3)
  })

  it('accepts __proto__ and other properties of Object as names', () => {
    const { metadata, tensors } = parse(
      rawFile(`{"__metadata__":{"__proto__":"x"},"__proto__":${two}}`, data),
    )
    expect([...tensors.keys()]).toEqual(['__proto__'])
    expect(metadata['__proto__']).toBe('x')
    expect(metadata['constructor']).toBeUndefined()
    expect(Object.getPrototypeOf({})).toBe(Object.prototype)
    expect(() => parse(rawFile(`{"__proto__":{"dtype":"U8"}}`))).toThrow('__proto__')
  })

  describe('rejects as truncated', () => {
    it.each([
      ['an empty file', Buffer.alloc(0)],
      ['a file of less than the length field', Buffer.alloc(7)],
      ['a file without room for a header', Buffer.alloc(9)],
      ['a header that is larger than the file', rawFile('{"a":', data, 1000n)],
      ['data that end too early', rawFile(`{"a":${two}}`, new Uint8Array(1))],
      [
        'offsets that are out of range and otherwise right',
        rawFile(`{"a":${entry('U8', '[99]', '[0,99]')}}`, data),
      ],
      [
        'a tensor of absurd size',
        rawFile(`{"a":${entry('U8', '[9007199254740991]', '[0,9007199254740991]')}}`, data),
      ],
    ])('%s', async (_, bytes) => {
      expect(await failure(FILE, () => parse(bytes))).toHaveProperty('code', 'ELDR_FILE_TRUNCATED')
    })
  })

  describe('rejects as not safetensors', () => {
    it.each([
      ['a zip archive', Buffer.from('PK\u0003\u0004 and so on, with more than ten bytes')],
      ['a NumPy file', Buffer.from('\u0093NUMPY\u0001\u0000v\u0000{"descr"', 'latin1')],
      ['a header above 100,000,000 bytes', rawFile('{}', data, 100_000_001n)],
      ['the largest length there is', rawFile('{}', data, 0xffff_ffff_ffff_ffffn)],
      ['a header that begins with a space', rawFile(` {"a":${two}}`, data)],
      ['a header that begins with a byte order mark', rawFile(`\ufeff{"a":${two}}`, data)],
      ['a header that is an array', rawFile('[1,2]', data)],
    ])('%s', async (_, bytes) => {
      expect(await failure(FILE, () => parse(bytes))).toHaveProperty('code', 'ELDR_FILE_NOT_SAFETENSORS')
    })
  })

  describe('rejects as a broken header', () => {
    it.each([
      ['an empty header before a brace', rawFile('', Buffer.from('{}'), 0n)],
      ['text that is not JSON', rawFile('{"a":nonsense}', data)],
      ['JSON that goes on after its end', rawFile(`{"a":${two}}{}`, data)],
      ['JSON padded with zero bytes', rawFile(`{"a":${two}}\0\0`, data)],
      ['a comma too many', rawFile(`{"a":${two},}`, data)],
      [
        'bytes that are not UTF-8',
        rawFile(Buffer.concat([Buffer.from('{"'), Buffer.from([0xff]), Buffer.from(`":${two}}`)]), data),
      ],
      ['half a surrogate pair', rawFile(`{"\\ud800":${two}}`, data)],
      ['nesting far deeper than a header is', rawFile(`{"a":${'['.repeat(1_000_000)}`, data)],
      [
        'a header of more pieces than any file has tensors',
        rawFile(`{"a":[${'[],'.repeat(2_000_000)}[]]}`, data),
      ],
      [
        'a shape nested too deep',
        rawFile(`{"a":${entry('U8', `${'['.repeat(20)}2${']'.repeat(20)}`, '[0,2]')}}`, data),
      ],
      ['one tensor name twice', rawFile(`{"a":${two},"a":${two}}`, data)],
      ['one tensor name twice, once with an escape', rawFile(`{"a":${two},"\\u0061":${two}}`, data)],
      [
        'one field twice',
        rawFile('{"a":{"dtype":"U8","dtype":"U8","shape":[2],"data_offsets":[0,2]}}', data),
      ],
      ['one metadata key twice', rawFile(`{"__metadata__":{"k":"1","k" : "2"},"a":${two}}`, data)],
      ['metadata twice', rawFile(`{"__metadata__":{},"a":${two},"__metadata__":{}}`, data)],
      ['metadata that are a list', rawFile(`{"__metadata__":["x"],"a":${two}}`, data)],
      ['metadata that are null', rawFile(`{"__metadata__":null,"a":${two}}`, data)],
      ['a metadata value that is a number', rawFile(`{"__metadata__":{"layers":16},"a":${two}}`, data)],
      ['a tensor that is null', rawFile('{"a":null}')],
      ['a tensor that is a list', rawFile('{"a":["U8",[2],[0,2]]}', data)],
      ['a field too few', rawFile('{"a":{"dtype":"U8","shape":[2]}}', data)],
      [
        'a field that is not known',
        rawFile('{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2],"strides":[1]}}', data),
      ],
      ['an unknown type', rawFile(`{"a":${entry('F8_E4M3', '[2]', '[0,2]')}}`, data)],
      [
        'a type named like a property of every object',
        rawFile(`{"a":${entry('constructor', '[2]', '[0,2]')}}`, data),
      ],
      ['a type that is no string', rawFile('{"a":{"dtype":["U8"],"shape":[2],"data_offsets":[0,2]}}', data)],
      ['a negative size', rawFile(`{"a":${entry('U8', '[-2]', '[0,2]')}}`, data)],
      ['two negative sizes', rawFile(`{"a":${entry('U8', '[-2,-1]', '[0,2]')}}`, data)],
      ['a size with a fraction', rawFile(`{"a":${entry('U8', '[2.5]', '[0,2]')}}`, data)],
      ['a whole size written as a fraction', rawFile(`{"a":${entry('U8', '[2.0]', '[0,2]')}}`, data)],
      ['a size written with an exponent', rawFile(`{"a":${entry('U8', '[2e0]', '[0,2]')}}`, data)],
      ['an offset of minus zero', rawFile(`{"a":${entry('U8', '[2]', '[-0,2]')}}`, data)],
      [
        'a size above 2^53',
        rawFile(`{"a":${entry('U8', '[9007199254740993]', '[0,9007199254740993]')}}`, data),
      ],
      [
        'a size too large for a double',
        rawFile(`{"a":${entry('U8', `[1${'0'.repeat(400)}]`, '[0,2]')}}`, data),
      ],
      [
        'sizes whose product wraps round to the right one',
        rawFile(`{"a":${entry('U8', '[4294967296,4294967296]', '[0,0]')}}`),
      ],
      [
        'sizes whose product overflows before a zero',
        rawFile(`{"a":${entry('U8', '[9007199254740991,9007199254740991,0]', '[0,0]')}}`),
      ],
      ['nine dimensions', rawFile(`{"a":${entry('U8', '[2,1,1,1,1,1,1,1,1]', '[0,2]')}}`, data)],
      [
        'a shape that is no list',
        rawFile('{"a":{"dtype":"U8","shape":{"length":1,"0":2},"data_offsets":[0,2]}}', data),
      ],
      ['three offsets', rawFile(`{"a":${entry('U8', '[2]', '[0,2,2]')}}`, data)],
      ['offsets in the wrong order', rawFile(`{"a":${entry('U8', '[2]', '[2,0]')}}`, data)],
      [
        'a shape that needs more bytes than the offsets give',
        rawFile(`{"a":${entry('U16', '[2]', '[0,2]')}}`, data),
      ],
      ['tensors that overlap', rawFile(`{"a":${two},"b":${entry('U8', '[2]', '[1,3]')}}`, new Uint8Array(3))],
      ['two tensors in one place', rawFile(`{"a":${two},"b":${two}}`, data)],
      ['an empty tensor inside another', rawFile(`{"a":${two},"b":${entry('U8', '[0]', '[1,1]')}}`, data)],
      [
        'a hole between tensors',
        rawFile(`{"a":${two},"b":${entry('U8', '[1]', '[3,4]')}}`, new Uint8Array(4)),
      ],
      ['a hole before the first tensor', rawFile(`{"a":${entry('U8', '[1]', '[1,2]')}}`, data)],
      [
        'offsets far outside the file',
        rawFile(`{"a":${two},"b":${entry('U8', '[1]', '[9007199254740990,9007199254740991]')}}`, data),
      ],
      ['bytes after the last tensor', rawFile(`{"a":${two}}`, new Uint8Array(3))],
      ['bytes and no tensor', rawFile('{}', data)],
    ])('%s', async (_, bytes) => {
      expect(await failure(FILE, () => parse(bytes))).toHaveProperty('code', 'ELDR_FILE_BAD_HEADER')
    })
  })

  it('keeps messages to one line of bounded length, whatever the file holds', async () => {
    const nasty = `\\u0000\\n\\u001b[31m${'x'.repeat(100_000)}`
    for (const header of [
      `{"${nasty}":1}`,
      `{"${nasty}":${two},"${nasty}":${two}}`,
      `{"a":{"${nasty}":[]}}`,
      `{"a\n\u0007": nonsense}`,
    ]) {
      const { code, message } = await failure(FILE, () => parse(rawFile(header, data)))
      expect(code).toBe('ELDR_FILE_BAD_HEADER')
      expect(message).not.toMatch(/\p{Cc}/u)
      expect(message.length).toBeLessThan(800)
    }
  })

  it('finds a duplicate name wherever it is, and only then', () => {
    const name = fc.oneof(
      fc.constantFrom('a', 'b', '"', '\\', '\u0000', '__proto__', ':', '{'),
      fc.string({ unit: 'binary', maxLength: 3 }),
    )
    const wellFormed = name.filter(text => !/\p{Surrogate}/u.test(text))
    fc.assert(
      fc.property(fc.array(fc.tuple(wellFormed, fc.boolean()), { maxLength: 6 }), pairs => {
        const keys = pairs.map(([text, escape]) => (escape ? `"${escaped(text)}"` : JSON.stringify(text)))
        const bytes = rawFile(`{"__metadata__":{${keys.map(key => `${key} :"x"`).join()}}}`)
        const different = new Set(pairs.map(([text]) => text))
        expect(metadataNames(bytes)).toEqual(
          different.size < pairs.length ? { problem: 'twice' } : { names: different },
        )
      }),
    )
  })
})

function metadataNames(bytes: Uint8Array): { names: Set<string> } | { problem: string } {
  try {
    return { names: new Set(Object.keys(parse(bytes).metadata)) }
  } catch (error) {
    return { problem: error instanceof Error && error.message.includes('twice') ? 'twice' : String(error) }
  }
}
