import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { StopText } from './stop-text.ts'

/** The text emitted for these pieces. */
function through(pieces: readonly string[], stops: readonly string[], include = false) {
  const text = new StopText(stops, include)
  let passed = ''
  for (const piece of pieces) {
    const { text: more, stop } = text.push(piece)
    passed += more
    if (stop !== undefined) return { passed, stop }
  }
  return { passed: passed + text.rest() }
}

/** Reference implementation over the whole text. */
function whole(text: string, stops: readonly string[]) {
  const found = stops
    .map(stop => ({ stop, at: text.indexOf(stop) }))
    .filter(({ at }) => at >= 0)
    .toSorted((a, b) => a.at - b.at)[0]
  return found === undefined ? { passed: text } : { passed: text.slice(0, found.at), stop: found.stop }
}

describe('stop strings', () => {
  it('are found across pieces, and neither they nor the text after them is emitted', () => {
    expect(through(['one t', 'w', 'o three'], ['two'])).toEqual({ passed: 'one ', stop: 'two' })
    expect(through(['one t', 'w', 'o three'], ['two'], true)).toEqual({ passed: 'one two', stop: 'two' })
  })

  it('hold back only text that may be their start', () => {
    const text = new StopText(['END'])
    expect([
      text.push('a E').text,
      text.push('N').text,
      text.push('Z').text,
      text.push('E').text,
      text.rest(),
    ]).toEqual(['a ', '', 'ENZ', '', 'E'])
  })

  it('hold back nothing if there are none', () => {
    const text = new StopText([])
    expect([text.push('abc'), text.rest()]).toEqual([{ text: 'abc' }, ''])
  })

  it('are not searched for before min_tokens', () => {
    const text = new StopText(['b'])
    expect(text.push('abc', false)).toEqual({ text: 'abc' })
    expect(text.push('ab')).toEqual({ text: 'a', stop: 'b' })
  })

  it('are found as in the whole text, wherever it is split', () => {
    const letters = fc.string({ unit: fc.constantFrom('a', 'b', 'ä'), maxLength: 6 })
    const stops = fc.array(fc.string({ unit: fc.constantFrom('a', 'b', 'ä'), minLength: 1, maxLength: 4 }), {
      maxLength: 3,
    })
    fc.assert(
      fc.property(fc.array(letters, { maxLength: 12 }), stops, (pieces, stops) => {
        const { passed, stop } = through(pieces, stops) as { passed: string; stop?: string }
        const wanted = whole(pieces.join(''), stops) as { passed: string; stop?: string }
        // A longer string that starts earlier may end later: as in vLLM, the shorter one inside it has ended
        // the text by then.
        const isAsWanted =
          stop === wanted.stop ? passed === wanted.passed : pieces.join('').startsWith(passed + (stop ?? ''))
        expect(isAsWanted).toBe(true)
        expect(stop === undefined).toBe(wanted.stop === undefined)
      }),
    )
  })
})
