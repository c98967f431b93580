import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type Changes, editObject } from './edit.ts'
import { scanList, scanObject } from './scan.ts'

/** JSON text of a value with white space and escapes that JSON.stringify would not write. */
const spelled = (value: unknown): fc.Arbitrary<string> =>
  fc.array(fc.constantFrom('', ' ', '\n', '\t ', '\r\n'), { minLength: 8, maxLength: 8 }).map(spaces => {
    let next = 0
    const space = () => spaces[next++ % spaces.length]!
    const write = (one: unknown): string => {
      if (Array.isArray(one))
        return `[${space()}${one.map(item => write(item)).join(`${space()},${space()}`)}${space()}]`
      if (one !== null && typeof one === 'object')
        return `{${space()}${Object.entries(one)
          .map(([name, item]) => `${escaped(name)}${space()}:${space()}${write(item)}`)
          .join(`${space()},${space()}`)}${space()}}`
      return typeof one === 'string' ? escaped(one) : JSON.stringify(one)
    }
    const escaped = (text: string) =>
      space() === ''
        ? JSON.stringify(text)
        : JSON.stringify(text).replace(/[a-m]/g, c => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`)
    return space() + write(value) + space()
  })
const object = fc.dictionary(
  fc.oneof(fc.constantFrom('stream', 'n', 'prompt', '__proto__'), fc.string()),
  fc.jsonValue({ maxDepth: 3 }),
)
const parse = (bytes: Buffer) => JSON.parse(bytes.toString('utf8')) as Record<string, unknown>

describe('scanning JSON bytes', () => {
  it('finds the same members as a parser, with any white space and escapes', () => {
    fc.assert(
      fc.property(
        object.chain(value => spelled(value).map(text => ({ value, text }))),
        ({ text }) => {
          const bytes = Buffer.from(text)
          const found = scanObject(bytes)!.map(({ name, valueStart, end }) => [
            name,
            JSON.parse(bytes.toString('utf8', valueStart, end)),
          ])
          expect(found).toEqual(Object.entries(parse(bytes)))
        },
      ),
    )
  })

  it('tells names apart that share length, first and last byte', () => {
    const names = ['n_a_x', 'n_b_x', 'n_a_x', 'n\u00e9_x', '', 'n_c_x'.repeat(8), 'n_d_x'.repeat(8)]
    const text = `{${names.map((name, at) => `${JSON.stringify(name)}:${at}`).join(',')}}`
    for (let turn = 0; turn < 2; turn++)
      expect(scanObject(Buffer.from(text))!.map(({ name }) => name)).toEqual(names)
  })

  it.each(['00', '01', '1.', '-', '1e', '.5', '+1', '1_000'])('refuses the number %s', number => {
    expect(scanObject(Buffer.from(`{"a":${number}}`))).toBeUndefined()
  })

  it('finds the elements of a list', () => {
    fc.assert(
      fc.property(
        fc.array(fc.jsonValue({ maxDepth: 2 })).chain(value => spelled(value).map(text => ({ value, text }))),
        ({ value, text }) => {
          const bytes = Buffer.from(text)
          const found = scanList(bytes, 0, bytes.length)!.map(
            ({ start, end }) => JSON.parse(bytes.toString('utf8', start, end)) as unknown,
          )
          expect(found).toEqual(JSON.parse(JSON.stringify(value)))
          expect(scanList(bytes, 0, bytes.length, 1)!.length).toBe(Math.min(1, value.length))
        },
      ),
    )
  })

  it('refuses objects that are truncated or have trailing bytes', () => {
    const text = '{"a": [1, {"b": "}\\""}], "c": "x", "d": -1.5e3}'
    for (let cut = 0; cut < text.length; cut++)
      expect(scanObject(Buffer.from(text.slice(0, cut)))).toBeUndefined()
    for (const wrong of [
      `${text}x`,
      `${text}{}`,
      '[]',
      '"a"',
      '1',
      '',
      '{"a" 1}',
      '{"a":}',
      '{"a":1,}',
      '{,}',
      '{a:1}',
      '{"a":tru}',
      '{"a":01}',
      '{"a":1 2}',
      '{"\\x":1}',
    ])
      expect(scanObject(Buffer.from(wrong)), wrong).toBeUndefined()
    expect(scanObject(Buffer.from(`${'{"a":'.repeat(600)}1${'}'.repeat(600)}`))).toBeUndefined()
  })

  it('accepts any bytes without an error, and every object that a parser accepts', () => {
    const characters = fc.constantFrom('{', '}', '[', ']', '"', '\\', ',', ':', '1', 'a', ' ', 'é')
    const texts = fc.array(characters, { maxLength: 40 }).map(list => Buffer.from(list.join('')))
    const bytes = fc.oneof(
      texts,
      fc.uint8Array({ maxLength: 60 }).map(raw => Buffer.from(raw)),
    )
    fc.assert(
      fc.property(bytes, input => {
        const found = scanObject(input) !== undefined
        expect(found || !isObject(input)).toBe(true)
      }),
      { numRuns: 2000 },
    )
  })
})

function isObject(bytes: Buffer): boolean {
  try {
    const value: unknown = JSON.parse(bytes.toString('utf8'))
    return value !== null && typeof value === 'object' && !Array.isArray(value)
  } catch {
    return false
  }
}

describe('editing JSON bytes', () => {
  it('gives the same as parsing, changing and serialising', () => {
    const changes = fc.dictionary(
      fc.constantFrom('stream', 'n', 'prompt', 'max_tokens', 'x'),
      fc.option(fc.jsonValue({ maxDepth: 2 }), { nil: undefined }),
    )
    fc.assert(
      fc.property(object.chain(spelled), changes, (text, change) => {
        const bytes = Buffer.from(text)
        const wanted = new Map(Object.entries(parse(bytes)))
        for (const [name, value] of Object.entries(change)) {
          wanted.delete(name)
          if (value !== undefined) wanted.set(name, JSON.parse(JSON.stringify(value)))
        }
        const written: Changes = Object.fromEntries(
          Object.entries(change).map(([name, value]) => [
            name,
            value === undefined ? undefined : JSON.stringify(value),
          ]),
        )
        const edited = parse(editObject(bytes, scanObject(bytes)!, written))
        expect(new Map(Object.entries(edited))).toEqual(wanted)
      }),
    )
  })

  it('sets a duplicate name once, with or without escapes', () => {
    const bytes = Buffer.from('{"n":1,"stream":true,"n":2,"str\\u0065am":false,"prompt":"hé"}')
    expect(editObject(bytes, scanObject(bytes)!, { stream: 'false', n: undefined }).toString()).toBe(
      '{"stream":false,"prompt":"hé"}',
    )
  })

  it('keeps every other byte', () => {
    const bytes = Buffer.from(' { "a" : 1.0 , "b" :  [ "\\u00e9" ] } ')
    expect(editObject(bytes, scanObject(bytes)!, { c: Buffer.from('7') }).toString()).toBe(
      '{"c":7,"a" : 1.0 , "b" :  [ "\\u00e9" ]}',
    )
    expect(editObject(bytes, scanObject(bytes)!, { a: undefined, b: undefined }).toString()).toBe('{}')
  })
})
