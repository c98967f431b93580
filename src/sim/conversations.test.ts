import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { loadProfile } from '../cost/profile-file.ts'
import { prefillUs, transferUs, turnParts } from '../cost/profile.ts'
import { createRandom } from '../math/random.ts'
import { jsq } from '../policy/jsq.ts'
import { preferHolder } from '../policy/prefer-holder.ts'
import { createPrefillPolicy } from '../policy/prefill-policy.ts'
import { runConversations } from './conversation-study.ts'
import { type ConversationSpec, conversationWorkload } from './conversation-workload.ts'
import { simulate, type SimulationInput } from './simulate.ts'
import { createStudyLibrary } from './study-library.ts'
import { parseTopology } from './topology.ts'
import { replayOf } from './replay.ts'

const SPEC: ConversationSpec = {
  turns: 4,
  thinkSeconds: 2,
  firstTokens: [300, 600],
  messageTokens: [20, 60],
  outputTokens: [50, 150],
  blockTokens: 16,
  turnsReplay: 'domain',
}
const LOAD = { seconds: 100, perSecond: 20 }

describe('multi-turn traffic', () => {
  const { lengths, rows } = conversationWorkload(
    SPEC,
    [
      [0, 1],
      [2, 3],
    ],
    LOAD,
    createRandom(1),
  )
  const turnsOf = new Map<number, number[]>()
  lengths.conversations.forEach((talk, at) => turnsOf.set(talk, [...(turnsOf.get(talk) ?? []), at]))

  it('has the rate and the number of turns that were asked for', () => {
    expect(rows.length / LOAD.seconds).toBeGreaterThan(0.8 * LOAD.perSecond)
    expect(rows.length / LOAD.seconds).toBeLessThan(1.1 * LOAD.perSecond)
    expect(rows.length / turnsOf.size).toBeGreaterThan(3.2)
    expect(rows.length / turnsOf.size).toBeLessThan(4.4)
    expect(lengths.timesUs.every((time, at) => at === 0 || time >= lengths.timesUs[at - 1]!)).toBe(true)
  })

  it('repeats in each prompt what was said before, in one domain', () => {
    for (const turns of turnsOf.values())
      turns.forEach((at, turn) => {
        if (turn === 0) return
        const before = turns[turn - 1]!
        const said = lengths.promptTokens[before]! + lengths.outputTokens[before]! - 1
        expect(lengths.promptTokens[at]! - said).toBeGreaterThanOrEqual(20)
        expect(lengths.promptTokens[at]! - said).toBeLessThanOrEqual(60)
        expect(rows[at]! >> 1).toBe(rows[before]! >> 1)
        const { starts, ids } = lengths.prefixes!
        expect(ids[starts[at]!]).toBe(ids[starts[before]!])
      })
  })

  it('replays one request for all turns of a conversation, if asked', () => {
    const same = conversationWorkload(
      { ...SPEC, turnsReplay: 'same' },
      [
        [0, 1],
        [2, 3],
      ],
      LOAD,
      createRandom(1),
    )
    const rowOf = new Map<number, number>()
    same.lengths.conversations.forEach((talk, at) => {
      expect(rowOf.get(talk) ?? same.rows[at]).toBe(same.rows[at])
      rowOf.set(talk, same.rows[at]!)
    })
    expect(rowOf.size).toBeLessThan(same.rows.length)
  })
})

describe('one conversation of two turns, alone on its cluster', async () => {
  const profile = await loadProfile('h200-first')
  const [prompt, output, message] = [1_000, 40, 24]
  const second = prompt + output + message
  const replay = replayOf({
    layers: 1,
    experts: 4,
    topK: 1,
    ids: new Uint8Array(8),
    maxSteps: 8,
    steps: [8],
    promptTokens: [1],
  })
  const blocks = (tokens: number) => Array.from({ length: Math.floor(tokens / 16) }, (_, block) => block)
  const held = [blocks(prompt + output), blocks(second + output)]
  const lengths = {
    source: 'test',
    timesUs: Float64Array.of(0, 60e6),
    promptTokens: Int32Array.of(prompt, second),
    outputTokens: Int32Array.of(output + 1, output + 1),
    prefixes: {
      blockTokens: 16,
      starts: Int32Array.of(0, held[0]!.length, held[0]!.length + held[1]!.length),
      ids: Int32Array.from(held.flat()),
    },
    conversations: Int32Array.of(0, 0),
  }
  const run = (skipPrefillBelowTokens: number | undefined, more: Partial<SimulationInput> = {}) =>
    simulate({
      workload: { arrivals: { kind: 'recorded', timesUs: lengths.timesUs }, rows: Int32Array.of(0), lengths },
      requests: 2,
      measured: { first: 1, end: 2 },
      seed: 1,
      replay,
      profile,
      topology: parseTopology('1P2D'),
      decodePolicy: preferHolder(jsq()),
      prefillPolicy: createPrefillPolicy('prefix_hash'),
      limits: { decodeCaching: true, prefixCacheTokens: 100_000 },
      conversations:
        skipPrefillBelowTokens === undefined
          ? undefined
          : { maxEntries: 8, keptMs: 1e6, skipPrefillBelowTokens, cost: turnParts(profile) },
      ...more,
    })
  /** Of the one measured request. */
  const ttftMs = ({ histograms }: ReturnType<typeof run>) => histograms.clientTtftUs.sum / 1_000
  const cached = 16 * Math.floor((prompt + output) / 16)

  it('transfers only what its worker lacks, if it is kept there', () => {
    const kept = run(0)
    expect(kept.turns).toMatchObject({ kept: 1, alone: 0, moved: 0, decodeHitTokens: cached })
    const empty = run(0, { limits: { prefixCacheTokens: 100_000 } })
    expect(empty.turns).toMatchObject({ kept: 1, decodeHitTokens: 0 })
    const savedMs = (transferUs(profile, second) - transferUs(profile, second - cached)) / 1_000
    expect(ttftMs(empty) - ttftMs(kept)).toBeCloseTo(savedMs, 3)
  })

  it('computes the rest itself, if that saves the prefill', () => {
    const [kept, alone] = [run(0), run(100)]
    expect(alone.turns).toMatchObject({ kept: 0, alone: 1, moved: 0, decodeHitTokens: cached })
    const atPrefill = 16 * Math.floor(prompt / 16)
    expect(kept.turns.prefilledTokens - alone.turns.prefilledTokens).toBe(second - atPrefill)
    const remoteUs = prefillUs(profile, second - atPrefill) + transferUs(profile, second - cached)
    const ownUs = profile.prefill.perTokenUs * (second - cached)
    expect(ttftMs(kept) - ttftMs(alone)).toBeCloseTo((remoteUs - ownUs) / 1_000, 3)
  })

  it('is a request like any other if conversations are not followed', () => {
    expect(run(undefined).turns).toMatchObject({ kept: 0, alone: 0, moved: 0 })
  })
})

describe('a study of conversations', () => {
  const data = (part: string) =>
    fileURLToPath(new URL(`../../data/lab16-task.${part}.safetensors`, import.meta.url))
  const study = {
    library: createStudyLibrary(),
    trace: data('evaluation'),
    profile: 'h200-qwen3-30b-a3b',
    topology: '1P4D',
    seconds: 20,
    spec: SPEC,
    options: { maxEntries: 1_000, keptMs: 1e6, skipPrefillBelowTokens: 512 },
    prefixCacheTokens: 1_000_000,
  }
  const base = { policy: 'jsq', rate: 20, gigabytesPerSecond: 2, turnsReplay: 'domain', seed: 1 } as const

  it('shows a shorter time to the first token, less prefill, and the same runs again', async () => {
    const off = await runConversations(study, { ...base, mode: 'off' })
    const keep = await runConversations(study, { ...base, mode: 'keep' })
    const skip = await runConversations(study, { ...base, mode: 'skip' })
    expect(off.turns).toMatchObject({ kept: 0, alone: 0, moved: 0 })
    expect(keep.turns.decodeHitTokens).toBeGreaterThan(off.turns.decodeHitTokens)
    expect(keep.ttftP50Ms).toBeLessThan(off.ttftP50Ms)
    expect(skip.ttftP50Ms).toBeLessThan(keep.ttftP50Ms)
    expect(skip.turns.prefilledTokens).toBeLessThan(0.9 * off.turns.prefilledTokens)
    expect(await runConversations(study, { ...base, mode: 'skip' })).toEqual(skip)
  })
})
