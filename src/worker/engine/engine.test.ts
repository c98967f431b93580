import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { temporaryFolder } from '../../../test/trace-support.ts'
import {
  engineOn,
  finished,
  jumpingClock,
  range,
  replayOn,
  requestOf,
  SETTINGS,
  SMALL_STEPS,
  smallTrace,
  start,
} from '../../../test/worker-support.ts'
import type { EngineSettings, StepItem, WorkerEngine } from '../types.ts'
import { createEngine } from './engine.ts'

const folder = temporaryFolder()
let trace = ''
beforeAll(async () => {
  trace = await smallTrace(folder.path)
})
afterAll(() => folder.remove())

const open: WorkerEngine[] = []
afterEach(() => Promise.all(open.splice(0).map(engine => engine.close())))
async function engineWith(settings: Partial<EngineSettings> = {}): Promise<WorkerEngine> {
  const engine = await engineOn(trace, settings)
  open.push(engine)
  return engine
}

/** An engine, and every step that its back end computed: [from, to, decode] of each item. */
async function watchedEngine(settings: Partial<EngineSettings> = {}, fault?: (step: number) => void) {
  const backEnd = await replayOn(trace)
  const steps: { ids: string[]; spans: [number, number, boolean][] }[] = []
  const step = backEnd.step.bind(backEnd)
  backEnd.step = (items: readonly StepItem[], sink) => {
    steps.push({
      ids: items.map(({ request }) => request.id),
      spans: items.map(({ from, to, decode }) => [from, to, decode]),
    })
    fault?.(steps.length)
    return step(items, sink)
  }
  const engine = createEngine(backEnd, { ...SETTINGS, ...settings }, jumpingClock())
  open.push(engine)
  return { engine, steps }
}

const idleStats = { running: 0, waiting: 0, fetching: 0, kvUsage: 0, batch: 0, active: 0, blocksKept: 0 }

describe('an engine', () => {
  it('generates until the end of the text: the prefill token, the row’s decode steps and the end token', async () => {
    const engine = await engineWith()
    const { ids, text, end } = await finished(engine, requestOf(range(0, 20), { maxTokens: 100 }))
    expect(end).toMatchObject({
      reason: 'stop',
      promptTokens: 20,
      cachedTokens: 0,
      completionTokens: SMALL_STEPS + 1,
      tail: '',
    })
    expect(ids.at(-1)).toBe(engine.tokenizer.eosId)
    expect(text).toMatch(/^( [a-z]+){24}$/)
    expect(engine.tokenizer.encode(text)).toEqual(Int32Array.from(ids.slice(0, -1)))
  })

  it('fails only the request of a faulty item and completes the others', async () => {
    const backEnd = await replayOn(trace)
    const step = backEnd.step.bind(backEnd)
    let isBroken = ''
    backEnd.step = (items, sink) => {
      const at = items.findIndex(({ request, decode }) => decode && request.id === isBroken)
      return {
        ...step(items, sink),
        faults: at >= 0 ? new Map([[at, new Error('no finite numbers')]]) : undefined,
      }
    }
    const engine = createEngine(backEnd, SETTINGS, jumpingClock())
    open.push(engine)
    const requests = range(0, 3).map(i => requestOf(range(i, i + 20), { maxTokens: 6, ignoreEos: true }))
    isBroken = requests[1]!.id
    const all = requests.map(request => start(engine, request))
    const ends = await Promise.all(all.map(({ ended }) => ended))
    expect(ends.map(({ kind }) => kind)).toEqual(['finished', 'failed', 'finished'])
    expect(ends[1]).toEqual({ kind: 'failed', status: 500, message: 'no finite numbers' })
    expect(all.map(({ ids }) => ids.length)).toEqual([6, 1, 6])
    expect(engine.stats()).toMatchObject({ ...idleStats, finished: { failed: 1, length: 2 } })
  })

  it('respects max_tokens, min_tokens and ignore_eos', async () => {
    const engine = await engineWith()
    const ends = await Promise.all(
      [{ maxTokens: 5 }, { maxTokens: 100, minTokens: 40 }, { maxTokens: 60, ignoreEos: true }].map(
        async changes => {
          const { end, ids } = await finished(engine, requestOf(range(0, 20), changes))
          return [end.reason, ids.length, ids.includes(engine.tokenizer.eosId)]
        },
      ),
    )
    expect(ends).toEqual([
      ['length', 5, false],
      ['stop', 41, true],
      ['length', 60, false],
    ])
  })

  it('generates the same text at temperature 0 for any seed, and different texts above it', async () => {
    const engine = await engineWith()
    const say = async (temperature: number, seed?: number) =>
      (await finished(engine, requestOf(range(0, 9), { temperature, seed }))).text
    expect(await say(0, 1)).toBe(await say(0, 2))
    expect(await say(0.7, 1)).not.toBe(await say(0.7, 2))
    expect(await say(0.7)).toBe(await say(1.2))
  })

  it('computes prompts in chunks within its token budget, decode first, and starts them in order', async () => {
    const { engine, steps } = await watchedEngine({ maxBatchedTokens: 10 })
    const [a, b] = [requestOf(range(0, 4), { maxTokens: 4 }), requestOf(range(50, 65), { maxTokens: 2 })]
    await Promise.all([finished(engine, a), finished(engine, b)])
    expect(steps.map(({ spans }) => spans)).toEqual([
      [
        [0, 4, false],
        [0, 6, false],
      ],
      [
        [4, 5, true],
        [6, 15, false],
      ],
      [
        [5, 6, true],
        [15, 16, true],
      ],
      [[6, 7, true]],
    ])
    expect(steps[0]!.ids).toEqual([a.id, b.id])
    expect(engine.stats()).toMatchObject({
      ...idleStats,
      steps: 4,
      decodeSteps: 3,
      promptTokens: 19,
      generationTokens: 6,
      finished: { length: 2 },
    })
  })

  it('runs no more sequences at once than max_num_seqs', async () => {
    const { engine, steps } = await watchedEngine({ maxSeqs: 2 })
    await Promise.all(range(0, 5).map(n => finished(engine, requestOf([n, n], { maxTokens: 3 }))))
    expect(Math.max(...steps.map(({ ids }) => ids.length))).toBe(2)
  })

  it('reuses a cached prefix and computes at least one token', async () => {
    const { engine, steps } = await watchedEngine()
    const prompt = range(0, 48)
    const cold = await finished(engine, requestOf(prompt))
    const full = await finished(engine, requestOf(prompt))
    const part = await finished(engine, requestOf([...range(0, 40), ...range(500, 520)]))
    expect([cold, full, part].map(({ end }) => end.cachedTokens)).toEqual([0, 32, 32])
    expect(full.text).toBe(cold.text)
    expect(part.text).not.toBe(cold.text)
    expect(steps.filter(({ spans }) => !spans[0]![2]).map(({ spans }) => spans[0]!.slice(0, 2))).toEqual([
      [0, 48],
      [32, 48],
      [32, 60],
    ])
    expect(engine.stats()).toMatchObject({ prefixQueries: 48 + 48 + 60, prefixHits: 64 })
    expect(engine.resetPrefixCache()).toBe(true)
    expect((await finished(engine, requestOf(prompt))).end.cachedTokens).toBe(0)
  })

  it('shares no blocks between requests with different rows', async () => {
    const engine = await engineWith()
    const texts = await Promise.all(
      [0, 1].map(async row => (await finished(engine, requestOf(range(0, 40), { row }))).text),
    )
    expect(texts[0]).not.toBe(texts[1])
    expect((await finished(engine, requestOf(range(0, 40), { row: 1 }))).end.cachedTokens).toBe(32)
  })

  it('preempts the sequence that started last when blocks run out, without changing its text', async () => {
    const alone = await engineWith()
    const { engine } = await watchedEngine({ blocks: 6, prefixCaching: false })
    const requests = range(0, 3).map(n =>
      requestOf(range(100 * n, 100 * n + 20), { maxTokens: 60, ignoreEos: true, recordDecode: true }),
    )
    const squeezed = await Promise.all(requests.map(request => finished(engine, request)))
    expect(engine.stats().preemptions).toBeGreaterThan(0)
    for (const { request, text, end } of squeezed) {
      const calm = await finished(alone, request)
      expect(text).toBe(calm.text)
      expect(end.decode).toEqual(calm.end.decode)
      expect(end.decode!.steps).toBe(59)
      expect(end.counts).toEqual(calm.end.counts)
    }
    expect(engine.stats()).toMatchObject({ ...idleStats, signatureRows: 0 })
  })

  it('refuses requests that its blocks could never hold, and invalid ones', async () => {
    const engine = await engineWith({ blocks: 2 })
    const refused = async (length: number, changes = {}) =>
      start(engine, requestOf(range(0, length), changes)).ended
    expect(await refused(30, { maxTokens: 4 })).toMatchObject({
      kind: 'failed',
      status: 400,
      message: expect.stringContaining('holds 32 tokens') as string,
    })
    expect((await refused(30, { maxTokens: 3 })).kind).toBe('finished')
    expect(await refused(0)).toMatchObject({ status: 400 })
    expect(await refused(3, { row: 24 })).toMatchObject({
      status: 400,
      message: 'The trace has rows 0 to 23, not 24.',
    })
    expect(engine.stats()).toMatchObject({ ...idleStats, finished: { failed: 3, length: 1 } })
  })

  it('fails the requests of a step that throws, and continues', async () => {
    const { engine } = await watchedEngine({}, step => {
      if (step === 2) throw new Error('broken model')
    })
    expect(await start(engine, requestOf(range(0, 9))).ended).toEqual({
      kind: 'failed',
      status: 500,
      message: 'broken model',
    })
    expect((await start(engine, requestOf(range(0, 9))).ended).kind).toBe('finished')
    expect(engine.stats()).toMatchObject(idleStats)
  })

  it('runs nothing when idle', async () => {
    const clock = jumpingClock()
    let turns = 0
    const engine = createEngine(await replayOn(trace), SETTINGS, {
      ...clock,
      soon: run => (turns++, clock.soon(run)),
    })
    open.push(engine)
    await finished(engine, requestOf(range(0, 9), { maxTokens: 2 }))
    await new Promise(setImmediate)
    const before = turns
    for (let i = 0; i < 5; i++) await new Promise(setImmediate)
    expect(turns).toBe(before)
    expect(engine.union().active.every(bit => bit === 0)).toBe(true)
  })

  it('reports the experts of its last decode step while it runs', async () => {
    const engine = await engineWith()
    let seen: [number, number, number[]] | undefined
    const look = (made: number) => {
      if (made !== 3) return
      const { batch, activePerLayer, active } = engine.stats()
      const { layers, experts, active: bits } = engine.union()
      const byLayer = range(0, layers).map(layer =>
        bits.subarray(layer * experts, (layer + 1) * experts).reduce((a, b) => a + b, 0),
      )
      expect(byLayer).toEqual([...activePerLayer])
      seen = [batch, active, byLayer]
    }
    await start(engine, requestOf(range(0, 9)), look).ended
    expect(seen).toEqual([1, 3, [3, 3, 3]])
  })
})

describe('an abort', () => {
  const gone = { ...idleStats, blocksFree: SETTINGS.blocks }

  it.each([
    ['before it started', 0],
    ['after its first token', 1],
    ['while it decodes', 5],
  ])('frees everything at once: %s', async (_, at) => {
    const engine = await engineWith()
    const watched = start(engine, requestOf(range(0, 40), { maxTokens: 20 }), (made, { handle }) => {
      if (made === at) handle.abort()
    })
    if (at === 0) watched.handle.abort()
    expect(await watched.ended).toEqual({ kind: 'aborted' })
    expect(engine.stats()).toMatchObject({ running: 0, waiting: 0, blocksFree: SETTINGS.blocks })
    watched.handle.abort('stop')
    await new Promise(setImmediate)
    expect([watched.ids.length, engine.stats()]).toMatchObject([at, gone])
  })

  it('frees everything at once, of a queued request and of one in the middle of its prompt', async () => {
    const engine = await engineWith({ maxSeqs: 1, maxBatchedTokens: 8 })
    const [first, queued] = [start(engine, requestOf(range(0, 80))), start(engine, requestOf(range(0, 9)))]
    while (engine.stats().steps < 3) await new Promise(setImmediate)
    expect(engine.stats()).toMatchObject({ running: 1, waiting: 1 })
    queued.handle.abort()
    expect(engine.stats()).toMatchObject({ running: 1, waiting: 0 })
    first.handle.abort()
    expect(engine.stats()).toMatchObject({ running: 0, blocksFree: SETTINGS.blocks })
    expect(await Promise.all([first.ended, queued.ended])).toEqual([{ kind: 'aborted' }, { kind: 'aborted' }])
  })

  it('with the reason stop ends the request as finished', async () => {
    const engine = await engineWith()
    const watched = start(
      engine,
      requestOf(range(0, 9)),
      (made, { handle }) => made === 3 && handle.abort('stop'),
    )
    expect(await watched.ended).toMatchObject({ kind: 'finished', reason: 'stop', completionTokens: 3 })
  })

  it('reaches all requests when the engine closes', async () => {
    const engine = await engineOn(trace)
    const watched = range(0, 3).map(n => start(engine, requestOf([n])))
    await new Promise(setImmediate)
    await engine.close()
    expect((await Promise.all(watched.map(({ ended }) => ended))).map(({ kind }) => kind)).toEqual([
      'aborted',
      'aborted',
      'aborted',
    ])
    expect(await start(engine, requestOf([1])).ended).toMatchObject({ kind: 'failed', status: 503 })
  })
})
