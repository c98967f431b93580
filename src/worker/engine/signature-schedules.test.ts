/**
 * Property test of the signature cache (paper §4.4): for any schedule, the counts of a request equal those of
 * a cold run.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { temporaryFolder } from '../../../test/trace-support.ts'
import {
  engineOn,
  finished,
  jumpingClock,
  range,
  replayOn,
  requestOf,
  SETTINGS,
  smallTrace,
  start,
  type Watched,
} from '../../../test/worker-support.ts'
import { createRandom, type Random } from '../../math/random.ts'
import type {
  BackEnd,
  CountsSnapshot,
  FinishedGeneration,
  Generation,
  RemoteKv,
  WorkerEngine,
} from '../types.ts'
import { createEngine } from './engine.ts'
import { SignatureCache } from './signature-cache.ts'

const folder = temporaryFolder()
afterAll(() => folder.remove())
let trace = ''
/** Reference without a cache: room for all, one step per prompt, nothing shared. */
let cold: WorkerEngine
beforeAll(async () => {
  trace = await smallTrace(folder.path)
  cold = await engineOn(trace, { prefixCaching: false, maxBatchedTokens: 1e6, blocks: 1_024 })
})
afterAll(() => cold.close())

const SCHEDULES = 2_000

interface Schedule {
  readonly random: Random
  readonly engine: WorkerEngine
  readonly remote: boolean
  readonly all: Watched[]
  /** Prompts, and prompts with their generated tokens, used as prefixes of later prompts. */
  readonly stems: number[][]
  readonly seen: { cache: SignatureCache | undefined; preemptions: number; hits: number }
}

/** A back end that exposes the signature cache it receives. */
function showing(backEnd: BackEnd, seen: Schedule['seen']): BackEnd {
  return new Proxy(backEnd, {
    get: (target, key: keyof BackEnd) => {
      if (key === 'step') {
        return ((items, sink) => {
          seen.cache = sink as SignatureCache
          return target.step(items, sink)
        }) satisfies BackEnd['step']
      }
      const value = target[key]
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
}

/** `remote`: some requests receive the KV of all or part of their prompt. */
async function scheduleOf(seed: number, remote = false): Promise<Schedule> {
  const random = createRandom(seed)
  const blockTokens = [1, 3, 4, 16, 17, 32][random.below(6)]!
  const seen: Schedule['seen'] = { cache: undefined, preemptions: 0, hits: 0 }
  const settings = {
    ...SETTINGS,
    blockTokens,
    blocks: Math.ceil(64 / blockTokens) + random.below(Math.ceil(40 / blockTokens)),
    maxBatchedTokens: 1 + random.below(random.below(2) === 0 ? 8 : 80),
    maxSeqs: 1 + random.below(6),
  }
  const engine = createEngine(showing(await replayOn(trace), seen), settings, jumpingClock())
  return { random, engine, remote, all: [], stems: [[]], seen }
}

/** A prompt that shares a prefix with an earlier one, ending inside it or beyond its end. */
function nextRequest({ random, engine, remote, stems }: Schedule): Generation {
  const stem = stems[random.below(stems.length)]!
  const prompt = stem
    .slice(0, random.below(3) === 0 ? random.below(stem.length + 1) : stem.length)
    .slice(0, 50)
  const more = prompt.length === 0 ? 1 + random.below(40) : random.below(12)
  for (let i = 0; i < more; i++) prompt.push(random.below(3))
  const room = engine.settings.blocks * engine.settings.blockTokens - prompt.length
  const row = random.below(4) === 0 ? random.below(2) : undefined
  const keepForDecode = random.below(3) === 0
  const maxTokens = keepForDecode ? 1 : 1 + random.below(Math.min(room, 20))
  const asked = requestOf(prompt, {
    maxTokens,
    row,
    keepForDecode,
    recordDecode: random.below(2) === 0,
    ignoreEos: true,
  })
  return remote && random.below(2) === 0
    ? { ...asked, remote: fromElsewhere(asked, 1 + random.below(prompt.length)) }
    : asked
}

/** Without an explicit row a short prompt selects its row by its whole text, so it is handed off whole. */
function fromElsewhere({ promptIds, row }: Generation, part: number): RemoteKv {
  const tokens = row === undefined ? promptIds.length : part
  const fetch = async (_: AbortSignal, from: number) => {
    const { end } = await finished(
      cold,
      requestOf(promptIds.subarray(0, tokens), { maxTokens: 1, row, keepForDecode: true, ignoreEos: true }),
    )
    const payload = end.lease!.export(from)
    end.lease!.release()
    return payload
  }
  return { tokens, fetch }
}

function launch(schedule: Schedule): void {
  const { random, engine, stems, all } = schedule
  const request = nextRequest(schedule)
  stems.push([...request.promptIds])
  const abortAt = random.below(6) === 0 ? random.below(4) : -1
  const watched = start(engine, request, (made, { handle, ids }) => {
    const { signatureRows, blocks, blocksFree, blocksCached } = engine.stats()
    expect(signatureRows).toBeLessThanOrEqual(blocks - blocksFree + blocksCached)
    if (made === abortAt) handle.abort(random.below(2) === 0 ? 'stop' : 'gone')
    stems.push([...request.promptIds, ...ids])
  })
  if (abortAt === 0) setImmediate(() => watched.handle.abort())
  void watched.ended.then(end => {
    if (end.kind === 'finished' && end.lease) setImmediate(() => end.lease!.release())
  })
  all.push(watched)
}

async function run(schedule: Schedule): Promise<void> {
  const { random, engine } = schedule
  for (let i = 4 + random.below(8); i > 0; i--) {
    launch(schedule)
    for (let steps = random.below(4); steps > 0; steps--) await new Promise(setImmediate)
  }
  await Promise.all(schedule.all.map(({ ended }) => ended))
  await new Promise(setImmediate)
  schedule.seen.preemptions = engine.stats().preemptions
  schedule.seen.hits = engine.stats().prefixHits
}

/** Actual and expected results of a request: text, experts of its steps, counts. */
async function besideCold({ request, ids }: Watched, { decode, counts }: FinishedGeneration) {
  const again = {
    ...request,
    remote: undefined,
    maxTokens: Math.max(1, ids.length),
    keepForDecode: false,
    recordDecode: true,
  }
  const { end: expected, ids: expectedIds } = await finished(cold, again)
  const steps = decode?.ids
  return {
    got: [ids, steps, counts && { ...counts, recent: isNear(counts, expected.counts!) }],
    wanted: [
      expectedIds.slice(0, ids.length),
      steps && expected.decode!.ids.subarray(0, steps.length),
      counts && { ...expected.counts, recent: true },
    ],
  }
}

/** Recent counts sum the same weights in another order: equal up to rounding. */
function isNear({ recent: some }: CountsSnapshot, { recent: others }: CountsSnapshot): boolean {
  return some!.every((value, c) => Math.abs(value - others![c]!) < 1e-12)
}

describe('the signature cache', () => {
  it(
    `gives every request the counts of a cold run, over ${SCHEDULES} random schedules with a small cache`,
    { timeout: 240_000 },
    async () => {
      const met = { requests: 0, counted: 0, preemptions: 0, hits: 0, aborted: 0 }
      for (let seed = 0; seed < SCHEDULES; seed++) {
        const schedule = await scheduleOf(seed)
        await run(schedule)
        met.requests += schedule.all.length
        met.aborted += schedule.all.filter(({ end }) => end!.kind === 'aborted').length
        expect(schedule.all.filter(({ end }) => end!.kind === 'failed')).toEqual([])
        for (const watched of schedule.all) {
          const end = watched.end!
          if (end.kind !== 'finished') continue
          met.counted += end.counts ? 1 : 0
          const { got, wanted } = await besideCold(watched, end)
          expect(got, `seed ${seed}, ${watched.request.id}`).toEqual(wanted)
        }
        met.preemptions += schedule.seen.preemptions
        met.hits += schedule.seen.hits
        // Everything is freed, and no row outlives its block.
        const { engine, seen } = schedule
        expect(engine.stats()).toMatchObject({
          running: 0,
          waiting: 0,
          blocksFree: engine.settings.blocks,
          blocksKept: 0,
          leases: 0,
        })
        expect(engine.stats().signatureRows).toBe(engine.stats().blocksCached)
        expect(engine.resetPrefixCache()).toBe(true)
        expect(engine.stats().signatureRows).toBe(0)
        expect(range(0, engine.settings.blocks).filter(block => seen.cache?.isZero(block) === false)).toEqual(
          [],
        )
        await engine.close()
      }
      // The schedules cover the cases they are meant for.
      expect(met.counted).toBeGreaterThan(SCHEDULES)
      expect(met.preemptions).toBeGreaterThan(SCHEDULES / 4)
      expect(met.hits).toBeGreaterThan(10 * SCHEDULES)
      expect(met.aborted).toBeGreaterThan(SCHEDULES / 4)
    },
  )

  it(
    'counts no more than it knows when KV comes from elsewhere, and the text is the same',
    { timeout: 120_000 },
    async () => {
      const met = { partly: 0, preemptions: 0 }
      for (let seed = 0; seed < SCHEDULES / 4; seed++) {
        const schedule = await scheduleOf(seed, true)
        await run(schedule)
        expect(schedule.all.filter(({ end }) => end!.kind === 'failed')).toEqual([])
        for (const watched of schedule.all) {
          const end = watched.end!
          if (end.kind !== 'finished') continue
          const { counts, ...rest } = end
          const isWhole = counts?.covered === counts?.tokens
          const { got, wanted } = await besideCold(watched, isWhole ? end : rest)
          expect(got, `seed ${seed}, ${watched.request.id}`).toEqual(wanted)
          met.partly += isWhole ? 0 : 1
          const { topK, layers } = cold.model
          expect(counts?.counts.reduce((sum, count) => sum + count, 0)).toBe(
            counts && topK * layers * counts.covered,
          )
        }
        met.preemptions += schedule.seen.preemptions
        const { engine } = schedule
        expect(engine.stats()).toMatchObject({
          running: 0,
          waiting: 0,
          fetching: 0,
          blocksFree: engine.settings.blocks,
          leases: 0,
        })
        expect(engine.resetPrefixCache()).toBe(true)
        expect(engine.stats().signatureRows).toBe(0)
        await engine.close()
      }
      expect(met.partly).toBeGreaterThan(SCHEDULES / 8)
      expect(met.preemptions).toBeGreaterThan(SCHEDULES / 32)
    },
  )
})
