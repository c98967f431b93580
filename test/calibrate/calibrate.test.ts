/** What a calibration sends and writes, in this process against a real server. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, afterEach, describe, expect, it } from 'vitest'
import { journalOf } from '../../src/calibrate/calibrate.ts'
import { withTrace } from '../../src/trace/trace.ts'
import {
  type CapturingServer,
  countsOf,
  eldrOf,
  expertsOf,
  PROMPTS,
  respond,
  run,
  SHAPE,
  textOf,
  workshop,
} from './support.ts'

const { folder, given, serve, end } = workshop()
afterEach(() => end())
afterAll(() => end(true))

describe('calibrate', () => {
  it('sends each prompt as its line says and writes the results in the order of the file', async () => {
    const server = await serve(undefined, { ...SHAPE, halfLife: 64 })
    const texts = ['first', 'second one', '5,6,7']
    const paths = given([
      { prompt: 'first', domain: ' law ' },
      { messages: [{ role: 'user', content: 'second one' }] },
      '',
      { prompt: [5, 6, 7], max_tokens: 9, domain: 'law' },
    ])
    const result = await run(server.url, paths, { headers: ['x-team', 'search'] })
    expect(result).toEqual({
      model: 'synthetic',
      ...SHAPE,
      halfLife: 64,
      prompts: 3,
      resumed: 0,
      captured: { calibration: 3, evaluation: 0 },
      skipped: [],
      shorter: 0,
      files: { calibration: paths.out },
    })
    expect(server.asked.find(body => textOf(body) === 'first')).toEqual({
      model: 'synthetic',
      prompt: 'first',
      max_tokens: 6,
      ignore_eos: true,
      temperature: 0,
      stream: false,
      kv_transfer_params: { eldr: { record: 'decode' } },
    })
    expect(server.headers.every(({ 'x-team': team }) => team === 'search')).toBe(true)
    await withTrace(paths.out, async trace => {
      expect(trace).toMatchObject({
        model: 'synthetic',
        ...SHAPE,
        requests: 3,
        domains: ['law', 'none'],
        split: 'calibration',
        recentHalfLife: 64,
        ignored: [],
      })
      expect([...(await trace.prefillCounts())]).toEqual(texts.flatMap(text => [...countsOf(text, SHAPE)]))
      expect([...(await trace.prefillRecent())]).toEqual(
        texts.flatMap(text => [...countsOf(text, SHAPE)].map(count => count / 2)),
      )
      expect([...(await trace.promptTokens())!]).toEqual(texts.map(({ length }) => length))
      expect([...(await trace.domain())!]).toEqual([0, 1, 0])
      expect([...(await trace.decodeSteps())]).toEqual([5, 5, 5])
      const decoded = texts.flatMap(text => {
        const counts = Array.from({ length: 24 }, () => 0)
        expertsOf(text, text.length + 5, SHAPE)
          .slice(text.length * 6)
          .forEach((id, i) => counts[(Math.floor(i / 2) % 3) * 8 + id]!++)
        return counts
      })
      expect([...(await trace.decodeCounts())]).toEqual(decoded)
      expect(trace.has('decode_expert_ids')).toBe(false)
    })
  })

  it('holds out a share per domain, with the experts of every step, and no prompt in both traces', async () => {
    const server = await serve()
    const paths = given([...PROMPTS, ...PROMPTS.slice(0, 4)])
    const result = await run(server.url, paths, {
      holdout: 0.25,
      holdoutOut: paths.evaluation,
      workload: 'task',
    })
    expect(result.captured).toEqual({ calibration: 12, evaluation: 4 })
    await withTrace(paths.out, async a =>
      withTrace(paths.evaluation, async b => {
        const all = async (trace: typeof a) =>
          Promise.all(
            Array.from({ length: trace.requests }, async (_, row) =>
              (await trace.prefillCounts(row, row + 1)).join(),
            ),
          )
        const [left, right] = [new Set(await all(a)), new Set(await all(b))]
        expect([...left].filter(row => right.has(row))).toEqual([])
        expect([a.split, b.split, a.workload, b.workload]).toEqual([
          'calibration',
          'evaluation',
          'task',
          'task',
        ])
        expect(b.missingFor('replay')).toEqual([])
        expect(b.tensors.get('decode_expert_ids')).toMatchObject({ dtype: 'U8', shape: [4, 5, 3, 2] })
        const ids = await b.decodeExpertIds()
        const counts = await b.decodeCounts()
        const recount = new Uint16Array(counts.length)
        ids.forEach((id, i) => recount[Math.floor(i / 30) * 24 + (Math.floor(i / 2) % 3) * 8 + id]!++)
        expect(counts).toEqual(recount)
      }),
    )
  })

  it('uses two bytes per id above 256 experts, and rows as long as the longest', async () => {
    const shape = { layers: 2, experts: 300, topK: 3 }
    const server = await serve((body, response) =>
      respond(response, 200, { kv_transfer_params: { eldr: eldrOf(body, shape, textOf(body).length % 5) } }),
    )
    const paths = given(PROMPTS)
    const result = await run(server.url, paths, {
      holdout: 0.5,
      holdoutOut: paths.evaluation,
      ignoreEos: false,
    })
    expect(result.shorter).toBe(12)
    await withTrace(paths.evaluation, async trace => {
      const steps = await trace.decodeSteps()
      expect(trace.tensors.get('decode_expert_ids')).toMatchObject({
        dtype: 'U16',
        shape: [6, Math.max(...steps), 2, 3],
      })
      expect(await trace.decodeExpertIds()).toBeInstanceOf(Uint16Array)
    })
    expect(server.asked[0]).not.toHaveProperty('ignore_eos')
  })

  it('writes the same bytes at any concurrency, and keeps that many requests in flight', async () => {
    // The server responds only when five requests wait, and to the last one first.
    const waiting: (() => void)[] = []
    const server = await serve()
    const other = await serve(async (_, __, number) => {
      if (number === 0 || number > 5) return
      await new Promise<void>(resolve => {
        waiting.push(resolve)
        if (waiting.length === 5) waiting.toReversed().forEach(go => go())
      })
    })
    const [a, b] = [given(PROMPTS), given(PROMPTS)]
    await run(server.url, a, { concurrency: 1, holdout: 0.3, holdoutOut: a.evaluation })
    await run(other.url, b, { concurrency: 5, holdout: 0.3, holdoutOut: b.evaluation })
    expect([server.maxInFlight(), other.maxInFlight()]).toEqual([1, 5])
    expect(readFileSync(b.out)).toEqual(readFileSync(a.out))
    expect(readFileSync(b.evaluation)).toEqual(readFileSync(a.evaluation))
  })

  it('samples each request with its own seed, which depends on nothing else', async () => {
    const [server, other] = [await serve(), await serve()]
    await run(server.url, given(PROMPTS), { temperature: 0.8, concurrency: 1 })
    await run(other.url, given(PROMPTS), { temperature: 0.8, concurrency: 6 })
    const seeds = ({ asked }: CapturingServer) => asked.map(body => [textOf(body), body.seed]).toSorted()
    expect(seeds(other)).toEqual(seeds(server))
    expect(new Set(server.asked.map(({ seed }) => seed)).size).toBe(12)
    expect(server.asked[0]).toMatchObject({ temperature: 0.8 })
  })

  it('never writes text to its files', async () => {
    const found: string[] = []
    const paths = given(PROMPTS.map(({ prompt, domain }) => ({ prompt: `sesame ${prompt}`, domain })))
    const look = () =>
      readdirSync(folder).filter(
        name =>
          !name.endsWith('.jsonl') &&
          name.startsWith('c') &&
          readFileSync(join(folder, name)).includes('sesame'),
      )
    const server = await serve((_, __, number) => {
      if (number === 8) found.push(...look(), ...(existsSync(journalOf(paths.out)) ? [] : ['no journal']))
    })
    await run(server.url, paths)
    expect([...found, ...look()]).toEqual([])
    expect(existsSync(journalOf(paths.out))).toBe(false)
  })
})
