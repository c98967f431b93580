import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { WholeEvents } from './whole-events.ts'

const event = (text: string) => `data: ${JSON.stringify({ choices: [{ text }] })}\n\n`
const ERROR = 'data: {"error": {"message": "boom", "code": 500}}\n\n'
const DONE = 'data: [DONE]\n\n'

/** Pushes the text in chunks; `steps` is the output so far after each chunk. */
function passed(text: string, cuts: readonly number[] = []): { events: WholeEvents; steps: string[] } {
  const bytes = Buffer.from(text)
  const events = new WholeEvents()
  const places = [...new Set([0, ...cuts.map(cut => cut % (bytes.length + 1)), bytes.length])].toSorted(
    (a, b) => a - b,
  )
  let all = Buffer.alloc(0)
  const steps = places.slice(1).map((to, at) => {
    const piece = events.push(bytes.subarray(places[at], to))
    if (piece !== undefined) all = Buffer.concat([all, piece])
    return all.toString()
  })
  return { events, steps }
}

describe('WholeEvents', () => {
  it('passes the same bytes however the stream is chunked, always up to the end of an event', () => {
    const parts = fc.array(
      fc.oneof(
        fc.string().map(event),
        fc.constantFrom(': ping\n\n', event('é\n\n"error":{'), 'data: {}\r\n\r\n'),
      ),
    )
    fc.assert(
      fc.property(parts, fc.array(fc.nat(), { maxLength: 12 }), fc.string(), (list, cuts, half) => {
        const whole = list.join('') + DONE
        const { events, steps } = passed(`${whole}data: ${JSON.stringify(half)}`, cuts)
        expect(steps.at(-1)).toBe(whole)
        expect(events.amidEvent).toBe(false)
        for (const step of steps) expect(step).toMatch(/^$|\n\r?\n$/)
      }),
    )
  })

  it('stops before an error event of the worker', () => {
    fc.assert(
      fc.property(fc.nat({ max: 3 }), fc.array(fc.nat(), { maxLength: 6 }), (before, cuts) => {
        const { events, steps } = passed(event('a').repeat(before) + ERROR + DONE, cuts)
        expect([steps.at(-1), events.failed, events.done]).toEqual([event('a').repeat(before), true, false])
      }),
    )
  })

  it('passes an oversized event in chunks', () => {
    const large = event('a'.repeat(200_000))
    const { events, steps } = passed(large.slice(0, -100), [100_000])
    expect([steps[0]!.length, events.amidEvent]).toEqual([100_000, true])
    expect(events.push(Buffer.from(large.slice(-100)))!.toString()).toContain(large.slice(-100))
    expect(events.amidEvent).toBe(false)
  })
})
