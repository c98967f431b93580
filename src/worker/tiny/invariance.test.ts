/**
 * A request's tokens, experts and KV are the same bits however it was served: alone or in a batch, in chunks
 * of any size, on blocks of any size, from a cached prefix, after a preemption, from another worker's KV, by
 * SIMD or by the plain loops.
 */
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import * as fc from 'fast-check'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { engineOf, tiny6, writeSmallModel } from '../../../test/tiny-support.ts'
import { temporaryFolder } from '../../../test/trace-support.ts'
import { finished, requestOf, start } from '../../../test/worker-support.ts'
import { createRandom } from '../../math/random.ts'
import type { EngineSettings, Generation, RemoteKv, WorkerEngine } from '../types.ts'
import type { TinyKernelKind } from './kernel.ts'
import { loadTinyModel, type TinyModel } from './model-folder.ts'

const folder = temporaryFolder()
let small: TinyModel
beforeAll(async () => {
  small = await loadTinyModel(await writeSmallModel(join(folder.path, 'small')))
})
afterAll(() => folder.remove())

const open: WorkerEngine[] = []
afterEach(() => Promise.all(open.splice(0).map(engine => engine.close())))
function opened(
  model: TinyModel,
  settings: Partial<EngineSettings> = {},
  kind?: TinyKernelKind,
): WorkerEngine {
  const engine = engineOf(model, settings, kind)
  open.push(engine)
  return engine
}

/** Results that must not depend on how the request was served. */
interface Served {
  readonly ids: readonly number[]
  readonly text: string
  readonly decode: Uint16Array
  readonly counts: Uint32Array
  /** Hash of the prompt’s KV. */
  readonly kv: string
}

const asked = (promptIds: ArrayLike<number>, changes: Partial<Generation>) =>
  requestOf(promptIds, { ignoreEos: true, recordDecode: true, keepForDecode: true, ...changes })

async function serve(engine: WorkerEngine, request: Generation): Promise<Served> {
  const { ids, text, end } = await finished(engine, request)
  const kv = createHash('sha256').update(end.lease!.export(0).bytes).digest('hex')
  end.lease!.release()
  return { ids, text, decode: end.decode!.ids, counts: end.counts!.counts, kv }
}

/** One request after the other, each cold. */
async function serveAlone(model: TinyModel, requests: readonly Generation[]): Promise<Served[]> {
  const engine = opened(model, { prefixCaching: false })
  const served: Served[] = []
  for (const request of requests) served.push(await serve(engine, request))
  return served
}

/** Prefill on one engine, decode on another, which has no experts of the prompt. */
async function serveInTwoLegs(
  prefill: WorkerEngine,
  decode: WorkerEngine,
  request: Generation,
): Promise<Served> {
  const first = await finished(prefill, { ...request, maxTokens: 1, recordDecode: false })
  const tokens = request.promptIds.length
  const remote: RemoteKv = { tokens, fetch: async (_, from) => first.end.lease!.export(from) }
  const second = await serve(decode, { ...request, remote })
  first.end.lease!.release()
  return { ...second, counts: first.end.counts!.counts }
}

const prompts = fc
  .record({
    seed: fc.nat(),
    cuts: fc.array(fc.tuple(fc.nat({ max: 80 }), fc.integer({ min: 1, max: 60 })), {
      minLength: 2,
      maxLength: 7,
    }),
  })
  .map(({ seed, cuts }) => {
    const random = createRandom(seed)
    const ids = (count: number) => Array.from({ length: count }, () => 4 + random.below(8_000))
    const shared = ids(80)
    return cuts.map(([cut, own]) => [...shared.slice(0, cut), ...ids(own)])
  })
const sampling = fc.constantFrom(
  { temperature: 0 },
  { temperature: 0.8, topK: 50, seed: 7 },
  { temperature: 1.3, topP: 0.9, seed: 2 ** 45 },
)
const settings = fc
  .record({
    blockTokens: fc.constantFrom(1, 3, 16, 40),
    maxBatchedTokens: fc.integer({ min: 2, max: 400 }),
    maxSeqs: fc.integer({ min: 1, max: 8 }),
    prefixCaching: fc.boolean(),
    /** Tokens that fit; a request has at most 160. */
    room: fc.integer({ min: 160, max: 600 }),
  })
  .map(({ room, ...rest }) => ({ ...rest, blocks: Math.ceil(room / rest.blockTokens) + 1 }))

describe('requests on the tiny back end', () => {
  it('give the same bits alone and under any schedule', async () => {
    let [hits, preemptions] = [0, 0]
    await fc.assert(
      fc.asyncProperty(
        prompts,
        sampling,
        settings,
        fc.integer({ min: 2, max: 20 }),
        async (prompts, how, settings, maxTokens) => {
          const requests = prompts.map(ids => asked(ids, { ...how, maxTokens }))
          const alone = await serveAlone(small, requests)
          const engine = opened(small, settings)
          // Each request is sent after a token or two of the previous one; one more is aborted.
          const running: Promise<Served>[] = []
          const gone = start(
            engine,
            asked(prompts[0]!, { maxTokens: 5 }),
            made => made === 2 && gone.handle.abort(),
          )
          for (const request of requests) {
            running.push(serve(engine, request))
            await new Promise(resolve => setImmediate(() => setImmediate(resolve)))
          }
          expect(await Promise.all(running)).toEqual(alone)
          await gone.ended
          const stats = engine.stats()
          expect(stats).toMatchObject({ running: 0, waiting: 0, blocksKept: 0, kvUsage: 0 })
          hits += stats.prefixHits
          preemptions += stats.preemptions
          await Promise.all(open.splice(0).map(engine => engine.close()))
        },
      ),
      { numRuns: 40 },
    )
    // The schedules cover the cases they are meant for.
    expect(Math.min(hits, preemptions)).toBeGreaterThan(0)
  }, 120_000)

  it('give the same bits from another worker’s KV, for any block sizes', async () => {
    await fc.assert(
      fc.asyncProperty(prompts, sampling, settings, settings, async (prompts, how, ofPrefill, ofDecode) => {
        const requests = prompts.map(ids => asked(ids, { ...how, maxTokens: 8 }))
        const alone = await serveAlone(small, requests)
        // Leases hold blocks while the other leg waits: there is room for all of them.
        const [prefill, decode] = [
          opened(small, { ...ofPrefill, blocks: 2_000 }),
          opened(small, { ...ofDecode, blocks: 2_000 }),
        ]
        const apart = await Promise.all(requests.map(request => serveInTwoLegs(prefill, decode, request)))
        expect(apart).toEqual(alone)
        await Promise.all(open.splice(0).map(engine => engine.close()))
      }),
      { numRuns: 15 },
    )
  }, 120_000)

  it('give the same bits with SIMD and with the plain loops', async () => {
    const random = createRandom(3)
    for (const how of [{ temperature: 0 }, { temperature: 0.9, topP: 0.8, seed: 4 }]) {
      const request = asked(
        Array.from({ length: 70 }, () => 4 + random.below(8_000)),
        { ...how, maxTokens: 12 },
      )
      expect(await serve(opened(small, {}, 'plain'), request)).toEqual(
        await serve(opened(small, {}, 'simd'), request),
      )
    }
  })

  it('give the same bits with tiny6 in a full batch', async () => {
    const model = await tiny6()
    const texts = [
      'import argparse\n\ndef main',
      'Der Vertrag wird',
      'The patient was',
      '今天的天气',
      'Let x be a',
      'import argparse\n\ndef main(argv',
      'El acuerdo de',
      'function add(',
    ]
    const requests = texts.map((text, i) =>
      asked(model.tokenizer.encode(text), {
        maxTokens: 24,
        ...(i % 2 === 1 ? { temperature: 0.8, seed: i } : {}),
      }),
    )
    const alone = await serveAlone(model, requests)
    const engine = opened(model, { blocks: 64, maxBatchedTokens: 11, blockTokens: 4 })
    expect(await Promise.all(requests.map(request => serve(engine, request)))).toEqual(alone)
    expect(engine.stats().decodeTokens).toBeGreaterThan(engine.stats().decodeSteps)
    expect(new Set(alone.map(({ text }) => text)).size).toBe(8)
  })
})
