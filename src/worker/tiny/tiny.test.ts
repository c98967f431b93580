import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { engineOf, smallTensors, tiny6, writeSmallModel } from '../../../test/tiny-support.ts'
import { temporaryFolder } from '../../../test/trace-support.ts'
import { finished, range, requestOf, start } from '../../../test/worker-support.ts'
import { loadProfile } from '../../cost/profile-file.ts'
import { layerWeights, prefillUs, stepUs, transferUs } from '../../cost/profile.ts'
import type { BackEnd, StepItem } from '../types.ts'
import { loadTinyModel, type TinyModel } from './model-folder.ts'
import { createTiny, type TinySequence } from './tiny.ts'

const folder = temporaryFolder()
let small: TinyModel
beforeAll(async () => {
  small = await loadTinyModel(await writeSmallModel(join(folder.path, 'small')))
})
afterAll(() => folder.remove())

const BLOCKS = 40
function backEndOf(
  model = small,
  pace: Parameters<typeof createTiny>[0]['pace'] = 'real',
): BackEnd<TinySequence> {
  const backEnd = createTiny({ model, pace })
  backEnd.allocate(BLOCKS, 16)
  return backEnd
}

async function itemOf(
  backEnd: BackEnd<TinySequence>,
  ids: number[],
  span: Partial<StepItem<TinySequence>>,
): Promise<StepItem<TinySequence>> {
  const request = requestOf(ids)
  const given = {
    sequence: await backEnd.prepare(request),
    request,
    ids: request.promptIds,
    length: ids.length,
    from: 0,
    to: ids.length,
  }
  return { ...given, blocks: Int32Array.from(range(0, 8)), decode: false, record: undefined, ...span }
}

describe('a step of the tiny back end', () => {
  it('reports the experts of prompts to the sink, and counts only those of decode items', async () => {
    const backEnd = backEndOf()
    const { layers, experts, topK } = backEnd.model
    const put = new Map<string, number[]>()
    const sink = {
      put: (block: number, slot: number, own: Uint8Array | Uint16Array, at: number) =>
        void put.set(`${block}/${slot}`, [...own.subarray(at, at + layers * topK)]),
    }
    const prompt = await itemOf(backEnd, range(100, 120), {})
    expect(backEnd.step([prompt], sink)).toMatchObject({ ms: 0, active: 0 })
    expect([...put.keys()]).toEqual([
      ...range(0, 16).map(slot => `0/${slot}`),
      ...range(0, 4).map(slot => `1/${slot}`),
    ])
    const decode = await itemOf(backEnd, range(100, 121), { from: 20, decode: true })
    const other = await itemOf(backEnd, range(300, 310), { blocks: Int32Array.of(9) })
    const { activePerLayer, active } = backEnd.step([decode, other], sink)
    expect([...activePerLayer]).toEqual([topK, topK])
    expect(active).toBe(topK)
    const union = new Uint8Array(layers * experts)
    backEnd.union(union)
    const expected = put.get('1/4')!.map((expert, i) => Math.floor(i / topK) * experts + expert)
    expect([...union.keys()].filter(i => union[i] === 1)).toEqual(expected.toSorted((a, b) => a - b))
  })

  it('takes the profile’s time for the active experts, and no modelled time without a profile', async () => {
    const profile = await loadProfile('h200-first')
    const backEnd = backEndOf(small, { profile, speed: 2 })
    const prompt = await itemOf(backEnd, range(100, 120), {})
    expect(backEnd.step([prompt], undefined).ms).toBeCloseTo(prefillUs(profile, 20) / 2_000, 9)
    const decode = await itemOf(backEnd, range(100, 121), { from: 20, decode: true })
    const { ms, activePerLayer, active } = backEnd.step([decode], undefined)
    const mean = layerWeights(profile.shape.layers, 2).reduce(
      (sum, weight, layer) => sum + weight * activePerLayer[layer]!,
      0,
    )
    expect(active).toBeCloseTo(mean, 9)
    expect(ms).toBeCloseTo(
      stepUs(
        profile,
        1,
        active,
        21,
        profile.decode.windows?.map(({ tokens }) => Math.min(tokens, 21)),
      ) / 2_000,
      9,
    )
    expect(backEnd.transferMs(1_000)).toBeCloseTo(transferUs(profile, 1_000) / 2_000, 9)
    expect(backEndOf().transferMs(1_000)).toBe(0)
  })

  it('computes more tokens than a slice in one call, with the same result as in many', async () => {
    const ids = range(0, 400).map(i => 4 + ((i * 37) % 8_000))
    const blocks = Int32Array.from(range(0, 25))
    const [one, many] = [backEndOf(), backEndOf()]
    const whole = await itemOf(one, ids, { blocks })
    const { next } = one.step([whole], undefined)
    for (let from = 0; from < 400; from += 50)
      many.step([await itemOf(many, ids, { blocks, from, to: from + 50 })], undefined)
    expect(
      Buffer.from(many.exportKv(whole.sequence, blocks, 0, 400)).equals(
        one.exportKv(whole.sequence, blocks, 0, 400),
      ),
    ).toBe(true)
    expect(next[0]).toBeGreaterThanOrEqual(0)
    expect(one.bytesPerToken * 400 + 88).toBe(one.exportKv(whole.sequence, blocks, 0, 400).length)
  })
})

describe('KV from another worker', () => {
  it('is accepted if it belongs to the prompt and this model, and otherwise refused completely', async () => {
    const backEnd = backEndOf()
    const ids = range(100, 150)
    const item = await itemOf(backEnd, ids, {})
    backEnd.step([item], undefined)
    const bytes = backEnd.exportKv(item.sequence, item.blocks, 0, 50)
    const other = createTiny({
      model: await loadTinyModel(
        await writeSmallModel(join(folder.path, 'other'), smallTensors(undefined, 2)),
      ),
      pace: 'real',
    })
    other.allocate(BLOCKS, 16)
    const taker = backEndOf()
    const blocks = Int32Array.of(30, 3, 17, 9)
    const empty = Buffer.from(taker.exportKv(item.sequence, blocks, 0, 50))
    const changed = (at: number) => Uint8Array.from(bytes, (byte, i) => (i === at ? byte ^ 1 : byte))
    const take =
      (by: BackEnd<TinySequence>, payload: Uint8Array, prompt = ids, tokens = 50) =>
      () =>
        by.importKv(
          item.sequence,
          { bytes: payload, tokens },
          { ids: Int32Array.from(prompt), from: 0, tokens, blocks },
        )
    expect(take(taker, bytes.subarray(0, -4))).toThrow('bytes')
    expect(take(taker, new Uint8Array(0))).toThrow('0 bytes')
    expect(take(taker, bytes, ids, 49)).toThrow('bytes')
    expect(take(taker, changed(0))).toThrow('of this release')
    expect(take(taker, changed(5))).toThrow('of this release')
    expect(take(taker, changed(8))).toThrow('50 tokens of 2 layers')
    expect(take(taker, changed(5_000))).toThrow('checksum')
    expect(take(taker, bytes, ids.with(49, 7))).toThrow('belongs to another prompt')
    expect(take(other, bytes)).toThrow('belongs to another model')
    expect(Buffer.from(taker.exportKv(item.sequence, blocks, 0, 50)).equals(empty)).toBe(true)
    take(taker, bytes)()
    expect(Buffer.from(taker.exportKv(item.sequence, blocks, 0, 50)).equals(bytes)).toBe(true)
    // The rest after a prefix that the taker has already.
    const [rest, late] = [backEnd.exportKv(item.sequence, item.blocks, 32, 50), backEndOf()]
    expect(rest.length).toBe(88 + backEnd.bytesPerToken * 18)
    late.importKv(
      item.sequence,
      { bytes: rest, tokens: 50 },
      { ids: Int32Array.from(ids), from: 32, tokens: 50, blocks },
    )
    expect(Buffer.from(late.exportKv(item.sequence, blocks, 32, 50)).equals(rest)).toBe(true)
    expect(take(taker, rest)).toThrow('expected')
  })
})

describe('a model whose sums overflow', () => {
  it('fails only the affected request, and continues', async () => {
    const tensors = smallTensors()
    const norm = tensors['model.norm.weight']!.data as Uint16Array
    norm.fill(0x7f7f) // the largest bfloat16
    const model = await loadTinyModel(await writeSmallModel(join(folder.path, 'overflow'), tensors))
    const engine = engineOf(model)
    for (const temperature of [0, 1]) {
      const end = await start(engine, requestOf([5, 6, 7], { temperature })).ended
      expect(end).toMatchObject({
        kind: 'failed',
        status: 500,
        message: expect.stringContaining('non-finite logits') as string,
      })
    }
    expect(engine.stats()).toMatchObject({ running: 0, waiting: 0, finished: { failed: 2 } })
    expect(engine.stats().blocksFree).toBe(engine.stats().blocks)
    await engine.close()
  })
})

describe('generation with tiny6', () => {
  it('generates no stop token before min_tokens, greedy or sampled', async () => {
    const model = await tiny6()
    const engine = engineOf(model)
    const prompt = model.tokenizer.encode('The committee decided')
    for (const temperature of [0, 1]) {
      const say = async (changes: object) =>
        (
          await finished(
            engine,
            requestOf(prompt, { maxTokens: 12, ignoreEos: true, seed: 5, temperature, ...changes }),
          )
        ).ids
      const free = await say({})
      const stopTokenIds = new Set(free)
      const masked = await say({ stopTokenIds, minTokens: 8 })
      expect(masked.slice(0, 8).filter(id => stopTokenIds.has(id))).toEqual([])
      // After min_tokens they may occur again, and without min_tokens always.
      expect(await say({ stopTokenIds })).toEqual(free)
    }
    await engine.close()
  })

  it('ends on either end-of-text token, not before min_tokens, and continues with ignore_eos', async () => {
    const model = await tiny6()
    const engine = engineOf(model)
    const cases: [string, number, number][] = [
      ['What is 2 + 2?', 3, 3],
      ['Is the clause a governing law clause?', 4, 0],
    ]
    for (const [content, seed, endId] of cases) {
      const prompt = model.tokenizer.chat([{ role: 'user', content }])
      const say = async (changes: object) =>
        finished(engine, requestOf(prompt, { maxTokens: 120, temperature: 0.7, seed, topK: 50, ...changes }))
      const short = await say({})
      expect(short.end.reason).toBe('stop')
      expect(short.ids.at(-1)).toBe(endId)
      expect(short.text).toBe(model.tokenizer.decode(short.ids.slice(0, -1)))
      const least = short.ids.length + 5
      const longer = await say({ minTokens: least })
      expect(longer.ids.slice(0, short.ids.length - 1)).toEqual(short.ids.slice(0, -1))
      expect(longer.ids.slice(0, least).some(id => id === 0 || id === 3)).toBe(false)
      const on = await say({ ignoreEos: true })
      expect(on.end).toMatchObject({ reason: 'length', completionTokens: 120 })
      expect(on.ids.slice(0, short.ids.length)).toEqual(short.ids)
    }
    await engine.close()
  })

  it('samples by seed, uses a random seed by default, and accepts extreme temperatures', async () => {
    const model = await tiny6()
    const engine = engineOf(model)
    const prompt = model.tokenizer.encode('The committee decided')
    const say = async (changes: object) =>
      (
        await finished(
          engine,
          requestOf(prompt, { maxTokens: 16, ignoreEos: true, temperature: 1, ...changes }),
        )
      ).ids.join()
    expect(await say({ seed: 1 })).toBe(await say({ seed: 1 }))
    expect(await say({ seed: 1 })).not.toBe(await say({ seed: 2 }))
    expect(await say({})).not.toBe(await say({}))
    const greedy = await say({ temperature: 0 })
    expect(await say({ temperature: 1e-300, seed: 3 })).toBe(greedy)
    expect(await say({ temperature: 1e-4, seed: 3 })).toBe(greedy)
    expect(await say({ topK: 1 })).toBe(greedy)
    expect(await say({ topP: Number.MIN_VALUE })).toBe(greedy)
    const [endless, high] = [
      await say({ temperature: Infinity, seed: 4, minTokens: 16 }),
      await say({ temperature: 1e300, seed: 4, minTokens: 16 }),
    ]
    expect(endless).toBe(high)
    expect(endless).not.toBe(greedy)
    await engine.close()
  })
})
