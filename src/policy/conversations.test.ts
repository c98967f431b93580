import { describe, expect, it } from 'vitest'
import { Conversations, DEFAULT_TURN_COST, type Turn } from './conversations.ts'
import { createDecodePolicy } from './create-policy.ts'
import type { Candidate, RoutableRequest } from './decode-policy.ts'

const OPTIONS = { maxEntries: 3, keptMs: 1_000, skipPrefillBelowTokens: 100 }
const turn = (tokens: number, ...keys: number[]): Turn => ({ keys, tokens })
const last = (worker: string, request: RoutableRequest = { id: 'last' }) => ({ worker, request })
const at = (worker: number, inflight: number): Candidate => ({ worker, inflight, tokens: inflight * 100 })

describe('the memory of conversations', () => {
  it('knows the worker of the longest known start of a prompt', () => {
    const talks = new Conversations(OPTIONS)
    talks.ended(turn(50, 1), last('a'), 10, 0)
    talks.ended(turn(80, 7, 8), last('b'), 10, 0)
    expect(talks.find(turn(90, 1, 2, 3), 1)).toMatchObject({ worker: 'a', tokens: 60 })
    expect(talks.find(turn(200, 1, 7, 8, 9), 1)).toMatchObject({ worker: 'b', tokens: 90 })
    expect(talks.find(turn(90, 2, 3), 1)).toBeUndefined()
  })

  it('keeps the last turn of a conversation, and the conversations used last', () => {
    const talks = new Conversations(OPTIONS)
    talks.ended(turn(50, 1), last('a'), 10, 0)
    talks.ended(turn(90, 1, 2, 3), last('b'), 10, 1)
    expect(talks.size).toBe(1)
    for (const key of [10, 20, 30]) talks.ended(turn(50, key), last('c'), 10, 2)
    expect(talks.size).toBe(3)
    expect(talks.find(turn(99, 1, 2, 3, 4), 3)).toBeUndefined()
    expect(talks.find(turn(99, 10), 3)).toBeDefined()
  })

  it('forgets what is too old, and the worker that lost its cache', () => {
    const talks = new Conversations(OPTIONS)
    talks.ended(turn(50, 1), last('a'), 10, 0)
    talks.ended(turn(50, 2), last('b'), 10, 500)
    expect(talks.find(turn(50, 1), 1_001)).toBeUndefined()
    expect(talks.size).toBe(1)
    talks.lost('a')
    expect(talks.find(turn(50, 2), 1_001)).toBeDefined()
    talks.lost('b')
    expect(talks.size).toBe(0)
  })

  it('prices a transfer that is saved over the usual number of steps', () => {
    const talks = new Conversations(OPTIONS)
    for (let i = 0; i < 1_000; i++) talks.ended(turn(990, 1), last('a'), 10, 0)
    const { worker, savedUsPerStep } = talks.holder(talks.find(turn(1_100, 1, 2), 0)!, at(4, 0))
    expect(worker).toBe(4)
    expect(savedUsPerStep).toBeCloseTo((DEFAULT_TURN_COST.transferPerTokenUs * 1_000) / 10, 3)
  })

  it('skips prefill for few new tokens, if the requests there lose less than is saved', () => {
    const talks = new Conversations(OPTIONS)
    talks.ended(turn(990, 1), last('a'), 10, 0)
    const kept = talks.find(turn(1_000, 1), 0)!
    const saving = (tokens: number, inflight: number) =>
      talks.holderAlone(kept, turn(tokens, 1, 2), at(0, inflight))?.savedUsPerStep
    expect(saving(1_101, 0)).toBeUndefined()
    // 1,000 µs and 1.97 µs per token of transfer, 8,000 µs of prefill; 25 µs per new token and request
    expect(saving(1_100, 4)! / saving(1_100, 0)!).toBeCloseTo(1 - (25 * 100 * 4) / 11_162.7, 3)
    expect(saving(1_100, 5)).toBeUndefined()
    expect(saving(1_010, 40)).toBeGreaterThan(0)
  })
})

describe('a policy that knows who holds the KV cache', () => {
  const context = { random: () => 0 }
  const shape = { layers: 1, experts: 4, topK: 1 }
  const counts = Uint16Array.of(4, 0, 0, 0)
  const options = { workers: 3, shape, cost: { base: 1_000, perExpert: 100, perRequest: 10 } }
  const pick = (name: 'jsq' | 'union', savedUsPerStep: number, candidates: Candidate[]) =>
    createDecodePolicy(name, options)!.pick(
      { id: 'r', counts, holder: { worker: 1, savedUsPerStep } },
      candidates,
      context,
    ).worker

  it.each(['jsq', 'union'] as const)('%s breaks ties for it, and does so on an idle cluster', name => {
    expect(pick(name, 0.1, [at(0, 3), at(1, 3), at(2, 3)])).toBe(1)
    expect(pick(name, 0.1, [at(0, 0), at(1, 0), at(2, 0)])).toBe(1)
  })

  it('jsq prefers it by as many requests as the saving is worth, within a bound', () => {
    // 410 µs per request: 10 + 4 experts of 100
    expect(pick('jsq', 400, [at(0, 3), at(1, 4), at(2, 3)])).toBe(0)
    expect(pick('jsq', 420, [at(0, 3), at(1, 4), at(2, 3)])).toBe(1)
    expect(pick('jsq', 1e9, [at(0, 3), at(1, 4), at(2, 3)])).toBe(1)
    expect(pick('jsq', 1e9, [at(0, 3), at(1, 6), at(2, 3)])).toBe(0)
  })

  it('union weighs the saving against the experts that the request would add, within a bound', () => {
    const policy = createDecodePolicy('union', { ...options, cost: { ...options.cost, perExpert: 20 } })!
    policy.dispatched!({ id: 'same', counts }, 0)
    const other = Uint16Array.of(0, 0, 4, 0)
    policy.dispatched!({ id: 'other', counts: other }, 1)
    policy.dispatched!({ id: 'third', counts: other }, 2)
    const picked = (savedUsPerStep: number, inflight = 1) =>
      policy.pick(
        { id: 'r', counts, holder: { worker: 1, savedUsPerStep } },
        [at(0, 1), at(1, inflight), at(2, 1)],
        context,
      ).worker
    // One expert more costs 20 µs for this request, the other one and eight expected ones.
    expect(picked(150)).toBe(0)
    expect(picked(230)).toBe(1)
    expect(picked(1e9)).toBe(1)
    expect(picked(1e9, 6)).toBe(0)
  })
})

describe('a worker that lacks the KV cache of a turn that skipped prefill', () => {
  const missed = { computedTokens: 5_000 }
  const next = turn(5_020, 1, 2)
  function talking() {
    const talks = new Conversations({ ...OPTIONS, maxEntries: 9, keptMs: 1e9 })
    talks.ended(turn(4_990, 1), last('a'), 10, 0)
    talks.ended(turn(4_990, 5), last('a'), 10, -5)
    talks.ended(turn(4_990, 7), last('a'), 10, 5)
    return talks
  }
  const maySkip = (talks: Conversations, nowMs: number, key = 7) =>
    talks.holderAlone(talks.find(turn(5_020, key), nowMs)!, turn(5_020, key), at(0, 0), nowMs) !== undefined

  it('gets no more of them for a minute, then one, and more after a hit', () => {
    const talks = talking()
    expect(maySkip(talks, 10)).toBe(true)
    expect(talks.skipped(talks.find(next, 10)!, next, missed, 10)).toBe(true)
    expect([maySkip(talks, 11), maySkip(talks, 60_009)]).toEqual([false, false])
    expect(maySkip(talks, 60_010)).toBe(true)
    const kept = talks.find(turn(5_020, 7), 60_010)!
    talks.skips(kept)
    expect(maySkip(talks, 60_011)).toBe(false)
    expect(talks.skipped(kept, turn(5_020, 7), { computedTokens: 20 }, 60_020)).toBe(false)
    expect(maySkip(talks, 60_021)).toBe(true)
  })

  it('waits twice as long after each further miss, but not for turns that were on their way', () => {
    const talks = talking()
    const kept = talks.find(turn(5_020, 7), 0)!
    talks.skipped(kept, next, missed, 0)
    talks.skipped(kept, next, missed, 50_000)
    talks.ended(turn(4_990, 7), last('a'), 10, 50_001)
    expect(maySkip(talks, 60_000)).toBe(true)
    talks.skips(kept)
    talks.skipped(kept, next, missed, 60_000)
    expect([maySkip(talks, 179_999), maySkip(talks, 180_000)]).toEqual([false, true])
  })

  it('loses that conversation and those that were idle for longer', () => {
    const talks = talking()
    talks.skipped(talks.find(next, 10)!, next, missed, 10)
    expect([1, 5, 7].map(key => talks.find(turn(9, key), 11) !== undefined)).toEqual([false, false, true])
  })

  it('shows it by the time to the first token of a long prompt, if it reports no cached tokens', () => {
    const [long, short] = [turn(23_400, 1), turn(500, 2)]
    const talks = new Conversations({ ...OPTIONS, maxEntries: 9 })
    for (const each of [long, short]) talks.ended({ ...each, tokens: each.tokens - 20 }, last('a'), 0, 0)
    const how = (each: Turn, firstTokenMs: number) =>
      talks.skipped(talks.find(each, 0)!, each, { firstTokenMs }, 0)
    expect([how(short, 771), how(long, 112), how(long, 771)]).toEqual([false, false, true])
    talks.lost('a')
  })

  it('is tried again after a turn that failed or tells nothing', () => {
    const talks = talking()
    const kept = talks.find(turn(5_020, 7), 0)!
    talks.skipped(kept, next, missed, 0)
    talks.ended(turn(4_990, 7), last('a'), 10, 1)
    for (const how of [undefined, {}]) {
      talks.skips(kept)
      expect(maySkip(talks, 60_000)).toBe(false)
      talks.skipped(kept, next, how, 60_000)
      expect(maySkip(talks, 60_000)).toBe(true)
    }
  })
})
