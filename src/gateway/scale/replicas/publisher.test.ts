import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { Publisher, type PublisherOptions, type Publication } from './publisher.ts'

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }))
afterEach(() => void vi.useRealTimers())

function start(more: Partial<PublisherOptions> = {}) {
  const sent: (Publication & { atMs: number })[] = []
  const state = { inflight: 1, answer: (): Promise<number | undefined> => Promise.resolve(100) }
  const publisher = new Publisher({
    publishMs: 5,
    rowsMs: 20,
    leaseMs: 300,
    bytesPerSecond: 1e9,
    nowMs: () => performance.now(),
    loads: () => [{ key: 1, inflight: state.inflight, tokens: 0 }],
    cells: () => 0,
    rows: whole => [{ key: whole ? 1 : 2, packed: Buffer.of(1) }],
    send: publication => {
      sent.push({ ...publication, atMs: performance.now() })
      return state.answer()
    },
    ...more,
  })
  publisher.start()
  return {
    publisher,
    sent,
    state,
    gaps: () => sent.slice(1).map(({ atMs }, n) => Math.round(atMs - sent[n]!.atMs)),
  }
}

describe('a replica publishes', () => {
  it('once for many changes, with the loads at that time', async () => {
    const { publisher, sent, state } = start()
    await vi.advanceTimersByTimeAsync(5)
    for (let n = 2; n <= 40; n++) {
      state.inflight = n
      publisher.touch()
    }
    await vi.advanceTimersByTimeAsync(5)
    expect(sent.map(({ loads }) => loads[0]!.inflight)).toEqual([1, 40])
  })

  it('three times per lease if nothing changes', async () => {
    const { sent, gaps } = start()
    await vi.advanceTimersByTimeAsync(1_000)
    expect(sent.length).toBeGreaterThanOrEqual(10)
    expect(Math.max(...gaps())).toBeLessThanOrEqual(101)
  })

  it('one message at a time to a slow store, and the next has the latest state', async () => {
    const { publisher, sent, state } = start()
    let answered: (bytes: number) => void = () => {}
    state.answer = () => new Promise(resolve => (answered = resolve))
    await vi.advanceTimersByTimeAsync(5)
    for (let n = 2; n <= 30; n++) {
      state.inflight = n
      publisher.touch()
      await vi.advanceTimersByTimeAsync(10)
    }
    expect(sent.length).toBe(1)
    answered(100)
    await vi.advanceTimersByTimeAsync(5)
    expect(sent.map(({ loads }) => loads[0]!.inflight)).toEqual([1, 30])
  })

  it('nothing after it is stopped, and everything when it is started again', async () => {
    const { publisher, sent } = start({ cells: () => 4 })
    await vi.advanceTimersByTimeAsync(50)
    publisher.stop()
    publisher.touch()
    const before = sent.length
    await vi.advanceTimersByTimeAsync(1_000)
    expect(sent.length).toBe(before)
    publisher.start()
    await vi.advanceTimersByTimeAsync(5)
    expect(sent.at(-1)!.whole).toBe(true)
  })
})

describe('rows of union', () => {
  it('are published every rowsMs, loads every publishMs, and rows even if nothing else changes', async () => {
    const { publisher, sent } = start({ cells: () => 4 })
    for (let n = 0; n < 40; n++) {
      publisher.touch()
      await vi.advanceTimersByTimeAsync(5)
    }
    const withRows = sent.filter(({ rows }) => rows.length > 0)
    expect(sent.length).toBeGreaterThanOrEqual(35)
    expect(withRows.length).toBeGreaterThanOrEqual(8)
    expect(withRows.length).toBeLessThanOrEqual(11)
    const before = sent.length
    await vi.advanceTimersByTimeAsync(40)
    expect(sent.slice(before).some(({ rows }) => rows.length > 0)).toBe(true)
  })

  it('keep to the limit of bytes per second', async () => {
    const { publisher, sent } = start({ cells: () => 4, bytesPerSecond: 1_000 }) // 100 bytes each
    for (let n = 0; n < 200; n++) {
      publisher.touch()
      await vi.advanceTimersByTimeAsync(5)
    }
    const rows = sent.filter(publication => publication.rows.length > 0).length
    expect(rows).toBeGreaterThanOrEqual(9)
    expect(rows).toBeLessThanOrEqual(11)
  })

  it('are all published again after a message that failed', async () => {
    const { publisher, sent, state } = start({ cells: () => 4 })
    await vi.advanceTimersByTimeAsync(50)
    state.answer = () => Promise.resolve(undefined)
    publisher.touch()
    await vi.advanceTimersByTimeAsync(30)
    state.answer = () => Promise.resolve(100)
    const before = sent.length
    publisher.touch()
    await vi.advanceTimersByTimeAsync(30)
    expect(sent.slice(before).some(({ whole }) => whole)).toBe(true)
  })
})
