import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { CleanedEvents } from './cleaned-events.ts'

const DONE = 'data: [DONE]\n\n'
const event = (value: object) => `data: ${JSON.stringify(value)}\n\n`

function passed(events: CleanedEvents, text: string, cuts: readonly number[] = []): string {
  const bytes = Buffer.from(text)
  const places = [...new Set([0, ...cuts.map(cut => cut % bytes.length), bytes.length])]
  const ends = places.toSorted((a, b) => a - b)
  const pieces = ends.slice(1).map((end, at) => events.push(bytes.subarray(ends[at], end)))
  return pieces.map(piece => piece?.toString() ?? '').join('')
}

describe('CleanedEvents', () => {
  it('removes the fields from every event, however the stream is chunked', () => {
    fc.assert(
      fc.property(fc.array(fc.string()), fc.array(fc.nat(), { maxLength: 12 }), (texts, cuts) => {
        const events = new CleanedEvents(['secret', 'other'])
        const sent = texts.map(text => event({ secret: { text }, text, nested: { secret: 1 } })).join('')
        const kept = texts.map(text => event({ text, nested: { secret: 1 } })).join('')
        expect(passed(events, `${sent}${DONE}`, cuts)).toBe(`${kept}${DONE}`)
        expect([events.events, events.done, events.failed]).toEqual([texts.length, true, false])
      }),
    )
  })

  it('fails at an error event, and at an event that is too large to be cleaned', () => {
    const failing = new CleanedEvents(['secret'])
    expect(passed(failing, `${event({ a: 1 })}data: {"error": {"code": 500}}\n\n`)).toBe(event({ a: 1 }))
    expect(failing.failed).toBe(true)
    const large = new CleanedEvents(['secret'])
    expect(passed(large, `data: {"secret":"${'a'.repeat(5 << 20)}`)).toBe('')
    expect(large.failed).toBe(true)
  })
})
