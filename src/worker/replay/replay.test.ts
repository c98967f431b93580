import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { shipped } from '../../../test/data.ts'
import { failure, temporaryFolder } from '../../../test/trace-support.ts'
import {
  engineOn,
  finished,
  range,
  requestOf,
  SETTINGS,
  smallTrace,
  start,
} from '../../../test/worker-support.ts'
import { bytesOf, traceWith } from '../../../test/trace-support.ts'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type CostProfile, layerWeights, prefillUs, stepUs, transferUs } from '../../cost/profile.ts'
import { loadProfile } from '../../cost/profile-file.ts'
import { openTrace, type Trace } from '../../trace/trace.ts'
import type { BackEnd, StepItem } from '../types.ts'
import { createReplay } from './replay.ts'

const folder = temporaryFolder()
const lab16 = shipped('lab16-task.evaluation')
let trace: Trace
let profile: CostProfile
let backEnd: BackEnd
beforeAll(async () => {
  trace = await openTrace(lab16)
  profile = { ...(await loadProfile('h200-first')), name: 'test' }
  profile = {
    ...profile,
    decode: { ...profile.decode, perContextKTokenUs: 40, windows: [{ tokens: 32, perContextKTokenUs: 70 }] },
  }
  backEnd = await createReplay({ trace, profile, speed: 2 })
  backEnd.allocate(64, 16)
})
afterAll(async () => {
  await backEnd.close()
  folder.remove()
})

/** Sequence n in blocks 4n…: `made` tokens were generated, the newest is computed. */
async function decoding(n: number, row: number, promptTokens: number, made: number): Promise<StepItem> {
  const request = requestOf(range(n, n + promptTokens), { row })
  const length = promptTokens + made
  const ids = Int32Array.from({ length }, (_, i) => n + i)
  const sequence = await backEnd.prepare(request)
  return {
    sequence,
    request,
    ids,
    length,
    from: length - 1,
    to: length,
    blocks: Int32Array.from(range(4 * n, 4 * n + 4)),
    decode: true,
    record: undefined,
  }
}

describe('a decode step of replay', () => {
  it('activates the recorded experts, and takes the profile’s time for their union', async () => {
    const steps = (await trace.decodeSteps())[0]!
    const cases: [number, number][] = [
      [3, 1],
      [77, 5],
      [200, steps + 2],
    ]
    const items = await Promise.all(cases.map(([row, made], n) => decoding(n, row, 10, Math.min(made, 50))))
    const { ms, active, activePerLayer } = backEnd.step(items, undefined)
    const { layers, experts, topK } = trace
    const sets = range(0, layers).map(() => new Set<number>())
    for (const [row, made] of cases) {
      const ids = await trace.decodeExpertIds(row, row + 1)
      const step = (Math.min(made, 50) - 1) % steps
      sets.forEach((set, layer) =>
        ids
          .subarray((step * layers + layer) * topK, (step * layers + layer + 1) * topK)
          .forEach(id => set.add(id)),
      )
    }
    expect([...activePerLayer]).toEqual(sets.map(({ size }) => size))
    const weights = layerWeights(profile.shape.layers, layers)
    expect(active).toBeCloseTo(
      sets.reduce((sum, { size }, layer) => sum + weights[layer]! * size, 0),
      9,
    )
    const contexts = items.map(({ to }) => to)
    const [context, windowed] = [contexts, contexts.map(tokens => Math.min(32, tokens))].map(all =>
      all.reduce((a, b) => a + b, 0),
    )
    expect(ms).toBeCloseTo(stepUs(profile, 3, active, context!, [windowed!]) / 2_000, 9)
    const bits = new Uint8Array(layers * experts)
    backEnd.union(bits)
    expect([...bits.keys()].filter(cell => bits[cell] === 1)).toEqual(
      sets.flatMap((set, layer) => [...set].sort((a, b) => a - b).map(e => layer * experts + e)),
    )
  })

  it('adds the cost of prompts in the same step; prompts alone take the prefill time', async () => {
    const [one, two] = [await decoding(0, 3, 10, 4), await decoding(1, 4, 40, 0)]
    const alone = backEnd.step([one], undefined).ms
    const prompt = { ...two, from: 0, to: 40, decode: false }
    expect(backEnd.step([one, prompt], undefined).ms).toBeCloseTo(
      alone + (40 * profile.prefill.perTokenUs) / 2_000,
      9,
    )
    expect(backEnd.step([prompt], undefined).ms).toBeCloseTo(prefillUs(profile, 40) / 2_000, 9)
    expect(backEnd.transferMs(500)).toBeCloseTo(transferUs(profile, 500) / 2_000, 9)
  })
})

describe('a replayed request', () => {
  it('has counts like those of its row if its prompt is as long', async () => {
    const row = 11
    const tokens = (await trace.promptTokens())![row]!
    const engine = await engineOn(lab16, { blocks: 256 })
    const { end } = await finished(
      engine,
      requestOf(
        range(0, tokens).map(i => (7 * i) % 900),
        { row, maxTokens: 1, keepForDecode: true },
      ),
    )
    const [recorded, drawn] = [await trace.prefillCounts(row, row + 1), end.counts!.counts]
    const dot = (a: ArrayLike<number>, b: ArrayLike<number>) =>
      Array.from(a).reduce((sum, value, i) => sum + value * b[i]!, 0)
    expect(dot(recorded, drawn) / Math.sqrt(dot(recorded, recorded) * dot(drawn, drawn))).toBeGreaterThan(
      0.97,
    )
    end.lease!.release()
    await engine.close()
  })

  it('records the experts of its decode steps, repeated if it is longer than its row', async () => {
    const engine = await engineOn(lab16)
    const steps = (await trace.decodeSteps())[5]!
    const { end } = await finished(
      engine,
      requestOf(range(0, 20), { row: 5, maxTokens: steps + 4, ignoreEos: true, recordDecode: true }),
    )
    const recorded = (await trace.decodeExpertIds(5, 6)).subarray(0, steps * 128)
    expect(end.decode!.steps).toBe(steps + 3)
    expect([...end.decode!.ids]).toEqual([...recorded, ...recorded.subarray(0, 3 * 128)])
    expect(end.counts).toMatchObject({ tokens: 20, covered: 20 })
    await engine.close()
  })

  it('follows a row selected by its first tokens, independent of later tokens and block size', async () => {
    const small = await smallTrace(folder.path)
    const engines = await Promise.all([16, 5].map(blockTokens => engineOn(small, { blockTokens })))
    const lengths = await Promise.all(
      engines.map(async engine => (await finished(engine, requestOf(range(0, 30)))).text),
    )
    expect(lengths[0]).toBe(lengths[1])
    await Promise.all(engines.map(engine => engine.close()))
  })

  it('keeps only recently used rows in memory, so a whole trace can be requested', async () => {
    const engine = await engineOn(lab16)
    const ends = await Promise.all(
      range(0, 400).map(row => start(engine, requestOf([1, 2, 3], { row, maxTokens: 1 })).ended),
    )
    expect(ends.every(({ kind }) => kind === 'finished')).toBe(true)
    expect(engine.stats()).toMatchObject({ blocks: SETTINGS.blocks, blocksFree: SETTINGS.blocks })
    await engine.close()
  })
})

describe('a trace that cannot be replayed', () => {
  it('is refused at startup', async () => {
    const path = join(folder.path, 'no-steps.safetensors')
    const open = async (changes: Parameters<typeof traceWith>[0]) => {
      writeFileSync(path, await bytesOf(traceWith(changes)))
      return createReplay({ trace: await openTrace(path), profile, speed: 1 })
    }
    const none = { dtype: 'U16', shape: [3], data: new Uint16Array(3) } as const
    expect(
      (await failure(path, () => open({ tensors: { decode_counts: undefined, decode_steps: none } }))).code,
    ).toBe('ELDR_TRACE_TOO_SMALL')
    expect((await failure(path, () => open({ tensors: { decode_expert_ids: undefined } }))).code).toBe(
      'ELDR_TENSOR_MISSING',
    )
  })
})
