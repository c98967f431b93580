import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { readTraceparent, readTracestate, traceparentOf } from './trace-context.ts'

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736'
const SPAN = '00f067aa0ba902b7'

describe('a traceparent', () => {
  it.each([
    [`00-${TRACE}-${SPAN}-01`, 1],
    [`00-${TRACE}-${SPAN}-00`, 0],
    [`00-${TRACE}-${SPAN}-ff`, 255],
    [`cc-${TRACE}-${SPAN}-03`, 3],
    [`cc-${TRACE}-${SPAN}-01-what-comes-later`, 1],
  ])('is read: %s', (header, flags) => {
    expect(readTraceparent(header)).toEqual({ traceId: TRACE, spanId: SPAN, flags })
  })

  it.each([
    '',
    `00-${TRACE}-${SPAN}`,
    `00-${TRACE}-${SPAN}-1`,
    `00-${TRACE}-${SPAN}-01-more`,
    `00-${TRACE}-${SPAN}-01-`,
    `cc-${TRACE}-${SPAN}-01.more`,
    `cc-${TRACE}-${SPAN}-011`,
    `ff-${TRACE}-${SPAN}-01`,
    `0-${TRACE}-${SPAN}-01`,
    `00-${TRACE.toUpperCase()}-${SPAN}-01`,
    `00-${TRACE}-${SPAN.replace('b', 'g')}-01`,
    `00-${'0'.repeat(32)}-${SPAN}-01`,
    `00-${TRACE}-${'0'.repeat(16)}-01`,
    `00-${TRACE.slice(1)}-${SPAN}-01`,
    ` 00-${TRACE}-${SPAN}-01`,
    `00-${TRACE}-${SPAN}-01, 00-${TRACE}-${SPAN}-01`,
    `00-${TRACE}-${SPAN}-01\n`,
  ])('is rejected: %j', header => {
    expect(readTraceparent(header)).toBeUndefined()
  })

  it('survives a round trip', () => {
    const hex = (digits: number) =>
      fc
        .string({ unit: fc.constantFrom(...'0123456789abcdef'), minLength: digits, maxLength: digits })
        .filter(id => /[^0]/.test(id))
    fc.assert(
      fc.property(fc.record({ traceId: hex(32), spanId: hex(16), flags: fc.nat(255) }), context => {
        expect(readTraceparent(traceparentOf(context))).toEqual(context)
      }),
    )
  })

  const anything = fc.oneof(
    fc.string({ unit: 'binary' }),
    fc.uint8Array().map(bytes => Buffer.from(bytes).toString('latin1')),
    fc.constantFrom(undefined, null, 7, ['a'], {}),
    // Almost valid headers: a valid one with some bytes replaced.
    fc
      .tuple(fc.array(fc.tuple(fc.nat(60), fc.string({ maxLength: 2 }))), fc.string())
      .map(([changes, more]) => {
        let text = `00-${TRACE}-${SPAN}-01${more}`
        for (const [at, put] of changes) text = text.slice(0, at) + put + text.slice(at + 1)
        return text
      }),
  )

  it('of any bytes never throws, and what is read can be written', () => {
    fc.assert(
      fc.property(anything, header => {
        const [read, state] = [readTraceparent(header), readTracestate(header)]
        expect(read === undefined || traceparentOf(read).slice(3) === (header as string).slice(3, 55)).toBe(
          true,
        )
        expect(state === undefined || readTracestate(state) === state).toBe(true)
      }),
      { numRuns: 2_000 },
    )
  })
})

describe('a tracestate', () => {
  it.each([
    ['congo=t61rcWkgMzE', 'congo=t61rcWkgMzE'],
    [' a=1 ,\tb@c=2,, ', 'a=1,b@c=2'],
    ['0a/b*c-d_e=x y', '0a/b*c-d_e=x y'],
    [
      Array.from({ length: 32 }, (_, at) => `k${at}=v`).join(),
      Array.from({ length: 32 }, (_, at) => `k${at}=v`).join(),
    ],
  ])('is passed on: case %#', (header, expected) => {
    expect(readTracestate(header)).toBe(expected)
  })

  it.each([
    '',
    ',',
    'a',
    '=1',
    'a=',
    'A=1',
    'a=1,a=2',
    'a=1=2',
    'a@=1',
    'a=\x7f',
    Array.from({ length: 33 }, (_, at) => `k${at}=v`).join(),
    `a=${'x'.repeat(257)}`,
  ])('is dropped: case %#', header => {
    expect(readTracestate(header)).toBeUndefined()
  })
})
