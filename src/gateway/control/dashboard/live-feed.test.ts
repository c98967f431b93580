import type { Exchange } from '../../http/exchange.ts'
import { describe, expect, it, vi } from 'vitest'
import type { DecisionRecord } from '../../observe/decision-log.ts'
import { LiveFeed, PULSE_MS, SAMPLE } from './live-feed.ts'
import { Stories } from '../../observe/insight/stories.ts'
import { Story } from '../../observe/insight/story.ts'
import type { Hello, Pulse } from '../../observe/insight/wire.ts'

const record = (n: number): DecisionRecord => ({
  request: `r${n}`,
  timeMs: n,
  policy: 'eldr',
  worker: 'd0',
  reason: 'band_hit',
  candidates: [
    { id: 'd0', inflight: 1, similarity: 0.123_456_789 },
    { id: 'd1', inflight: 0, similarity: NaN },
  ],
})
const SOURCES = {
  routing: () => ({ policy: 'eldr', tau: 0.1, prefillPolicy: 'prefix_hash', decodeWorkers: 2 }),
  workers: () => [],
  load: () => ({ running: 1, queued: 0 }),
  health: () => ({
    seconds: 1,
    decisions: 0,
    withoutSignature: 0,
    reasons: {},
    rejects: {},
    covered: 0,
    compared: 0,
    quantiles: [],
  }),
  pace: () => [],
  sliceMs: 5_000,
  decisions: () => [record(1)],
  place: () => [0.5, -0.25] as const,
  shown: () => undefined,
}
const dataOf = (event: string): unknown => JSON.parse(/^data: (.*)$/m.exec(event)![1]!)

describe('the feed', () => {
  it('shows all of a few decisions in order, and a uniform sample of many', () => {
    vi.useFakeTimers()
    try {
      const feed = new LiveFeed(SOURCES)
      const pulses: Pulse[] = []
      const stop = feed.follow(event => pulses.push(dataOf(event) as Pulse))!
      for (let n = 0; n < 3; n++) feed.decided(record(n), { id: '' })
      vi.advanceTimersByTime(PULSE_MS)
      expect(pulses[0]).toMatchObject({ seen: 3, watchers: 1 })
      expect(pulses[0]!.sample.map(({ request }) => request)).toEqual(['r0', 'r1', 'r2'])
      expect(pulses[0]!.sample[0]).toMatchObject({
        at: [0.5, -0.25],
        candidates: [{ similarity: 0.1235 }, { similarity: null }],
      })
      const times = new Float64Array(250)
      for (let round = 0; round < 400; round++) {
        for (let n = 0; n < 250; n++) feed.decided(record(n), { id: '' })
        vi.advanceTimersByTime(PULSE_MS)
        const { sample, seen } = pulses.at(-1)!
        expect([sample.length, seen]).toEqual([SAMPLE, 250])
        for (const { timeMs } of sample) times[timeMs]!++
      }
      // 16 of each on average, for early and late decisions alike.
      const mean = (from: number) => times.slice(from, from + 50).reduce((sum, one) => sum + one, 0) / 50
      for (const from of [0, 100, 200]) expect(Math.abs(mean(from) - 16)).toBeLessThan(3)
      stop()
      vi.advanceTimersByTime(10 * PULSE_MS)
      expect(pulses).toHaveLength(401)
      expect(vi.getTimerCount()).toBe(0)
    } finally {
      vi.useRealTimers()
    }
  })

  it('sends events early and once; a later watcher gets them in the greeting', () => {
    vi.useFakeTimers()
    try {
      const feed = new LiveFeed(SOURCES)
      feed.events.add('worker', 'd0', 'healthy')
      const pulses: Pulse[] = []
      feed.follow(event => pulses.push(dataOf(event) as Pulse))
      const hello = dataOf(feed.hello()) as Hello
      expect(hello.happenings).toMatchObject([{ number: 1, about: 'd0', change: 'healthy' }])
      expect(hello.decisions).toHaveLength(1)
      feed.events.add('worker', 'd1', 'unhealthy')
      feed.events.add('worker', 'd1', 'healthy')
      vi.advanceTimersByTime(50)
      expect(pulses.map(({ happenings }) => happenings.map(({ number }) => number))).toEqual([[2, 3]])
      vi.advanceTimersByTime(PULSE_MS)
      expect(pulses[1]!.happenings).toEqual([])
      feed.close()
    } finally {
      vi.useRealTimers()
    }
  })
})

describe('stories', () => {
  it('are kept for the last requests, and longer for requests that were shown', () => {
    const stories = new Stories(2)
    const told = Array.from({ length: 5 }, (_, n) => ({
      story: new Story(`r${n}`, 'chat', 0),
      record: record(n),
    }))
    for (const { story, record: decision } of told) {
      story.decided(decision)
      stories.link(decision, story)
      if (story.request === 'r1') stories.markShown(decision)
      stories.ended({} as Exchange, story)
    }
    expect(told.map(({ story }) => stories.find(story.request) === story)).toEqual([
      false,
      true,
      false,
      true,
      true,
    ])
    expect(stories.find('r1')!.decisions).toEqual([told[1]!.record])
  })
})
