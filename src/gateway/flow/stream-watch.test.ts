import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { StreamWatch } from './stream-watch.ts'

const token = (text: string) => `data: ${JSON.stringify({ choices: [{ text }] })}\n\n`
const usage = `data: ${JSON.stringify({ choices: [], usage: { prompt_tokens: 3, completion_tokens: 2 } })}\n\n`

function watch(text: string, cuts: readonly number[] = []): StreamWatch {
  const bytes = Buffer.from(text)
  const watcher = new StreamWatch()
  const places = [...new Set([0, ...cuts.map(cut => cut % (bytes.length + 1)), bytes.length])].toSorted(
    (a, b) => a - b,
  )
  for (let i = 1; i < places.length; i++)
    if (places[i]! > places[i - 1]!) watcher.push(bytes.subarray(places[i - 1], places[i]))
  return watcher
}

describe('StreamWatch', () => {
  it('counts the same events however the stream is chunked', () => {
    const parts = fc.array(
      fc.oneof(
        fc.string().map(token),
        fc.constantFrom(': ping\n\n', token('é\n\n"error":{')),
        fc.constant(usage),
      ),
    )
    fc.assert(
      fc.property(parts, fc.array(fc.nat(), { maxLength: 12 }), fc.boolean(), (list, cuts, done) => {
        const text = list.join('') + (done ? 'data: [DONE]\n\n' : '')
        const seen = watch(text, cuts)
        expect(seen.events).toBe(list.filter(part => part.startsWith('data')).length)
        expect(seen.done).toBe(done)
        expect(seen.failed).toBe(false)
      }),
    )
  })

  it('detects an error event, even as the first event', () => {
    const error = `data: {"error": {"message": "boom", "code": 500}}\n\n`
    fc.assert(
      fc.property(fc.nat({ max: 3 }), fc.array(fc.nat(), { maxLength: 6 }), (before, cuts) => {
        expect(watch(token('a').repeat(before) + error, cuts).failed).toBe(true)
      }),
    )
    expect(watch(token('{"error":{')).failed).toBe(false)
  })

  it('detects the older error format, data lines without a space, and events with other fields first', () => {
    expect(watch('data: {"object": "error", "message": "boom"}\n\n', [5]).failed).toBe(true)
    expect(watch('data: {"object": "text_completion"}\n\n', [5])).toMatchObject({ failed: false, events: 1 })
    expect(
      watch('data:{"id":1}\n\nid: 7\ndata: {"id":1}\n\n: ping\n\ndata:[DONE]\n\n', [9, 20]),
    ).toMatchObject({ events: 2, done: true })
  })

  it('accepts CRLF line endings', () => {
    const seen = watch('data: {"a":1}\r\n\r\ndata: [DONE]\r\n\r\n', [3, 14, 15, 16])
    expect([seen.events, seen.done]).toEqual([1, true])
  })
})
