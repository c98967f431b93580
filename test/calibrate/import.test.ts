/**
 * Imports saved responses of vLLM and SGLang: all their forms, what is rejected, and equality with a
 * calibration.
 */
import { execFile } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { importTrace, type ImportPlan } from '../../src/calibrate/import.ts'
import { withSafetensors } from '../../src/trace/safetensors-file.ts'
import { withTrace } from '../../src/trace/trace.ts'
import { failure } from '../trace-support.ts'
import { PROGRAM } from '../worker/processes.ts'
import { expertsOf, PROMPTS, run, SHAPE, workshop } from './support.ts'

const { folder, given, serve, end } = workshop()
afterAll(() => end(true))
const STEPS = 5
/** Layers of the rows; 0 and 3 are dense, so 1, 2 and 4 are those of SHAPE. */
const [ROW_LAYERS, ROUTES] = [5, [1, 2, 4]]
const { topK, experts } = SHAPE

/**
 * Rows of prompt and generated tokens without the last, which is never fed back; `fill`: value of dense
 * layers.
 */
function rowsOf(text: string, fill: number, steps = STEPS): number[] {
  const ids = expertsOf(text, text.length + steps, SHAPE)
  return Array.from({ length: text.length + steps }, (_, row) =>
    Array.from({ length: ROW_LAYERS }, (_l, layer) => {
      const at = (row * ROUTES.length + ROUTES.indexOf(layer)) * topK
      return ROUTES.includes(layer) ? ids.slice(at, at + topK) : Array.from({ length: topK }, () => fill)
    }).flat(),
  ).flat()
}

function npy(ids: readonly number[], bytes: 1 | 2): string {
  const header = `{'descr': '${bytes === 1 ? '|u1' : '<u2'}', 'fortran_order': False, 'shape': (${ids.length / (ROW_LAYERS * topK)}, ${ROW_LAYERS}, ${topK}), }`
  const head = Buffer.from(`\x93NUMPY\x01\x00\x00\x00${header.padEnd(117)}\n`, 'latin1')
  head.writeUInt16LE(head.length - 10, 8)
  const data = bytes === 1 ? Buffer.from(ids) : Buffer.from(Uint16Array.from(ids).buffer)
  return Buffer.concat([head, data]).toString('base64')
}
const raw = (ids: readonly number[]) => Buffer.from(Int32Array.from(ids).buffer).toString('base64')
const usageOf = (text: string) => ({
  prompt_tokens: text.length,
  completion_tokens: STEPS + 1,
  total_tokens: text.length + STEPS + 1,
})
const nested = (ids: readonly number[]) =>
  Array.from({ length: ids.length / 10 }, (_, row) =>
    Array.from({ length: 5 }, (_l, layer) => ids.slice(row * 10 + layer * 2, row * 10 + layer * 2 + 2)),
  )

type Line = (text: string) => object
const FORMS: readonly (readonly [string, 'vllm' | 'sglang', Line])[] = [
  [
    'vLLM, a completion',
    'vllm',
    text => ({
      model: 'synthetic',
      choices: [{ text: 'secret', routed_experts: npy(rowsOf(text, 0), 1) }],
      usage: usageOf(text),
    }),
  ],
  [
    'vLLM, two bytes an id, prompt ids in place of usage',
    'vllm',
    text => ({
      model: 'synthetic',
      prompt_token_ids: [...Buffer.from(text)],
      choices: [{ routed_experts: npy(rowsOf(text, 0), 2), token_ids: [1, 2, 3, 4, 5, 6] }],
    }),
  ],
  [
    'vLLM, as run-batch writes it',
    'vllm',
    text => ({
      id: 'batch',
      custom_id: '1',
      response: {
        status_code: 200,
        body: {
          model: 'synthetic',
          choices: [{ routed_experts: npy(rowsOf(text, 0), 1) }],
          usage: usageOf(text),
        },
      },
      error: null,
    }),
  ],
  [
    'vLLM, prompt and rest apart as lists',
    'vllm',
    text => ({
      model: 'synthetic',
      prompt_routed_experts: nested(rowsOf(text, 0)).slice(0, text.length),
      choices: [{ routed_experts: nested(rowsOf(text, 0)).slice(text.length) }],
      usage: usageOf(text),
    }),
  ],
  [
    'SGLang, /generate',
    'sglang',
    text => ({
      text: 'secret',
      meta_info: {
        prompt_tokens: text.length,
        completion_tokens: STEPS + 1,
        routed_experts: raw(rowsOf(text, -1)),
      },
    }),
  ],
  [
    'SGLang, OpenAI’s API',
    'sglang',
    text => ({
      model: 'synthetic',
      choices: [{ text: 'x' }],
      usage: usageOf(text),
      sglext: { routed_experts: raw(rowsOf(text, 0)) },
    }),
  ],
]

const planOf = (
  format: 'vllm' | 'sglang',
  lines: readonly unknown[],
  more: Partial<ImportPlan> = {},
): ImportPlan & { holdoutOut: string } => {
  const { prompts, out, evaluation } = given(lines)
  const shape = format === 'sglang' ? { layers: ROW_LAYERS, topK } : {}
  return {
    format,
    input: prompts,
    out,
    holdoutOut: evaluation,
    holdout: 0.3,
    seed: 0,
    experts,
    moeLayers: 'auto',
    model: 'synthetic',
    promptStart: 0,
    halfLife: 0,
    minCovered: 1,
    steps: 65_535,
    skipBad: false,
    force: false,
    ...shape,
    ...more,
  }
}
const linesOf = (line: Line) => PROMPTS.map(({ prompt, domain }) => ({ ...line(prompt), domain }))
const vllm = FORMS[0]![2]

async function tensorsOf(path: string): Promise<Record<string, string>> {
  return withSafetensors(path, async file =>
    Object.fromEntries(
      await Promise.all(
        [...file.tensors.keys()].map(async name => [
          name,
          `${file.info(name).dtype} ${(await file.read(name)).join()}`,
        ]),
      ),
    ),
  )
}

describe('saved responses', () => {
  it.each(FORMS)('give the same trace as a calibration: %s', async (_, format, line) => {
    const server = await serve()
    const paths = given(PROMPTS)
    await run(server.url, paths)
    const plan = planOf(format, linesOf(line))
    const result = await importTrace({ ...plan, holdout: 0, holdoutOut: undefined } as ImportPlan)
    expect(result).toMatchObject({
      ...SHAPE,
      halfLife: 0,
      moeLayers: ROUTES,
      answers: 12,
      imported: { calibration: 12, evaluation: 0 },
      skipped: [],
    })
    expect(await tensorsOf(plan.out)).toEqual(await tensorsOf(paths.out))
    await withTrace(plan.out, async trace =>
      expect(trace).toMatchObject({ model: 'synthetic', domains: ['law', 'code'], split: 'calibration' }),
    )
    expect(readFileSync(plan.out).includes('secret')).toBe(false)
  })

  it('are held out by prompt; equal prompts stay together, with or without token ids', async () => {
    for (const [, format, line] of [FORMS[0]!, FORMS[1]!, FORMS[4]!]) {
      const plan = planOf(format, [...linesOf(line), ...linesOf(line).slice(0, 6)])
      const { imported } = await importTrace(plan)
      expect(imported.calibration + imported.evaluation).toBe(18)
      expect(Math.abs(imported.evaluation - 5.4)).toBeLessThan(2)
      const rows = (path: string) =>
        withTrace(path, async trace =>
          Promise.all(
            Array.from({ length: trace.requests }, async (_, row) =>
              (await trace.prefillCounts(row, row + 1)).join(),
            ),
          ),
        )
      const [learnt, held] = [await rows(plan.out), new Set(await rows(plan.holdoutOut))]
      expect(learnt.filter(row => held.has(row))).toEqual([])
      await withTrace(plan.holdoutOut, async trace =>
        expect([trace.missingFor('replay'), trace.maxSteps]).toEqual([[], STEPS]),
      )
    }
    expect(readdirSync(folder).filter(name => /\.import/.test(name))).toEqual([])
  })

  it('give recent counts with any half-life, weighted from the end of the prompt, and at most the given steps', async () => {
    const plan = planOf('vllm', linesOf(vllm), { halfLife: 3, steps: 2, holdout: 0.5 })
    await importTrace(plan)
    await withTrace(plan.holdoutOut, async trace => {
      expect([trace.recentHalfLife, trace.maxSteps]).toEqual([3, 2])
      const [tokens, recent] = [(await trace.promptTokens())!, await trace.prefillRecent()]
      const lengths = PROMPTS.map(({ prompt }) => prompt.length)
      for (let row = 0; row < trace.requests; row++) {
        const { prompt } = PROMPTS[lengths.indexOf(tokens[row]!)]!
        const expected = new Float64Array(24)
        expertsOf(prompt, prompt.length, SHAPE).forEach((id, i) => {
          const distance = prompt.length - 1 - Math.floor(i / 6)
          expected[(Math.floor(i / 2) % 3) * 8 + id]! += 2 ** (-distance / 3)
        })
        expect([...recent.subarray(row * 24, row * 24 + 24)]).toEqual(
          [...expected].map(value => Math.floor(value * 256 + 0.5) / 256),
        )
      }
    })
  })

  it('without some prompt rows are skipped unless --min-covered allows them; decode ends at the first missing row', async () => {
    const text = PROMPTS[3]!.prompt
    const holed = (at: number) => {
      const ids = rowsOf(text, 0)
      ids.fill(0, at * 10, at * 10 + 10)
      return { model: 'm', choices: [{ routed_experts: npy(ids, 1) }], usage: usageOf(text) }
    }
    const lines = [holed(2), holed(text.length + 2), vllm(text)]
    const strict = await importTrace(
      planOf('vllm', lines, { holdout: 0, holdoutOut: undefined } as Partial<ImportPlan>),
    )
    expect([strict.imported.calibration, strict.skipped]).toEqual([
      2,
      [{ line: 1, why: `experts known for ${text.length - 1} of ${text.length} prompt tokens` }],
    ])
    const plan = planOf('vllm', lines, {
      holdout: 0,
      minCovered: 0.5,
      holdoutOut: undefined,
    } as Partial<ImportPlan>)
    await importTrace(plan)
    await withTrace(plan.out, async trace =>
      expect([...(await trace.decodeSteps())]).toEqual([STEPS, 2, STEPS]),
    )
  })

  it('may begin later in the prompt with --prompt-start', async () => {
    const cut = (text: string) => ({
      ...vllm(text),
      choices: [{ routed_experts: npy(rowsOf(text, 0).slice(40), 1) }],
    })
    const more = { holdout: 0, holdoutOut: undefined, minCovered: 0 } as Partial<ImportPlan>
    const error = await failure('', () => importTrace(planOf('vllm', linesOf(cut), more)))
    expect(error.message).toMatch(/rows for \d+ prompt and 6 generated tokens.*--prompt-start.*in line 1/)
    const plan = planOf('vllm', linesOf(cut), { ...more, promptStart: 4, halfLife: 1 })
    await importTrace(plan)
    await withTrace(plan.out, async trace => {
      const [counts, tokens] = [await trace.prefillCounts(0, 1), (await trace.promptTokens())![0]!]
      expect([counts.reduce((sum, count) => sum + count, 0), [...(await trace.decodeSteps())][0]]).toEqual([
        (tokens - 4) * 6,
        STEPS,
      ])
      // The weights add up to nearly 2 tokens; the last token has weight 1.
      const weight = (await trace.prefillRecent(0, 1)).reduce((sum, value) => sum + value, 0)
      expect(Math.abs(weight - 12)).toBeLessThan(0.1)
    })
  })
})

describe('unusable responses', () => {
  const good = vllm(PROMPTS[0]!.prompt) as { choices: object[]; usage: object }
  it.each([
    ['vllm', '{', /invalid JSON.*in line 2/],
    ['vllm', [1], /one JSON object per line/],
    ['vllm', { error: { message: 'out of memory' } }, /an error \("out of memory"\)/],
    ['vllm', { ...good, choices: [] }, /0 choices/],
    [
      'vllm',
      { ...good, choices: [...good.choices, ...good.choices] },
      /2 choices: expected one prompt and one choice/,
    ],
    ['vllm', { ...good, choices: [{ text: 'a' }] }, /--enable-return-routed-experts/],
    ['vllm', { ...good, choices: [{ routed_experts: 'AAAA' }] }, /not base64 of a .npy file/],
    ['vllm', { ...good, usage: undefined }, /no number of prompt tokens/],
    ['vllm', { ...good, domain: 'a,b' }, /invalid domain "a,b"/],
    [
      'vllm',
      { ...good, usage: { prompt_tokens: 3, completion_tokens: 2 } },
      /rows for 3 prompt and 2 generated/,
    ],
    ['sglang', { meta_info: { prompt_tokens: 3 } }, /"return_routed_experts": true/],
    ['sglang', { meta_info: { prompt_tokens: 3, routed_experts: 'AAA=' } }, /not base64 of int32/],
    [
      'sglang',
      { meta_info: { prompt_tokens: 3, routed_experts: raw([1, 2, 3]) } },
      /3 expert ids, not a multiple of 5 layers/,
    ],
  ] as const)(
    'are rejected with their line, or skipped with --skip-bad: %s %j',
    async (format, line, message) => {
      const lines = [format === 'vllm' ? good : FORMS[4]![2](PROMPTS[0]!.prompt), line]
      const more = { holdout: 0, holdoutOut: undefined } as Partial<ImportPlan>
      const plan = planOf(format, lines, more)
      const error = await failure(plan.input, () => importTrace(plan))
      expect([error.code, message.test(error.message), existsSync(plan.out)]).toEqual([
        'ELDR_FILE_WRONG_KIND',
        true,
        false,
      ])
      const skipping = await importTrace({ ...plan, skipBad: true })
      expect([
        skipping.imported.calibration,
        skipping.skipped.map(({ line: number }) => number),
        skipping.answers,
      ]).toEqual([1, [2], 2])
    },
  )

  it('are rejected if an option does not match', async () => {
    const lines = linesOf(vllm)
    const found = async (more: Partial<ImportPlan>) =>
      (await failure('', () => importTrace(planOf('vllm', lines, more)))).message
    expect(await found({ experts: 7 })).toMatch(/expert 7 in line \d+, expected experts below 7.*ELDR_USAGE/)
    expect(await found({ moeLayers: [1, 9] })).toMatch(/layer 9, expected layers from 0 to 4/)
    expect(await found({ layers: 4 })).toMatch(/5 layers and top 2, which differ from --layers/)
    // The zeros of a dense layer are not valid experts: with them no token is covered.
    expect(await found({ moeLayers: 'all' })).toMatch(/ELDR_TRACE_TOO_SMALL/)
    expect(
      (
        await failure('', () =>
          importTrace(
            planOf(
              'vllm',
              lines.map(line => ({ ...line, model: undefined })),
              { model: undefined } as Partial<ImportPlan>,
            ),
          ),
        )
      ).message,
    ).toMatch(/--model/)
    expect((await failure('', () => importTrace(planOf('vllm', [])))).code).toBe('ELDR_TRACE_TOO_SMALL')
  })
})

describe('eldr trace import', () => {
  const eldr = (...args: string[]) =>
    new Promise<{ code: number; out: string; err: string }>(resolve => {
      execFile(process.execPath, [PROGRAM, ...args], (error, out, err) =>
        resolve({ code: error === null ? 0 : Number(error.code), out, err }),
      )
    })

  it('prints a summary and writes a trace that `eldr fit` accepts', async () => {
    const input = join(folder, 'responses.jsonl')
    writeFileSync(input, [...linesOf(vllm), 'x'].map(line => JSON.stringify(line)).join('\n'))
    const out = join(folder, 'imported.calibration.safetensors')
    const args = [
      'trace',
      'import',
      '--format',
      'vllm',
      '-i',
      input,
      '-o',
      out,
      '--experts',
      '8',
      '--holdout',
      '0.25',
    ]
    expect((await eldr(...args)).err).toMatch(/in line 13.*--skip-bad/s)
    const { code, out: said } = await eldr(...args, '--skip-bad')
    expect([code, said]).toEqual([
      0,
      expect.stringMatching(
        /synthetic: 3 layers × 8 experts, top 2; MoE layers 1, 2, 4\ncalibration .*9 requests\nevaluation .*imported\.evaluation\.safetensors +3 requests\nskipped line 13: not a response/,
      ),
    ])
    expect((await eldr(...args, '--skip-bad')).err).toContain('[ELDR_FILE_EXISTS]')
    expect(JSON.parse((await eldr(...args, '--skip-bad', '--force', '--json')).out)).toMatchObject({
      answers: 13,
      moeLayers: ROUTES,
    })
    expect(
      (await eldr('fit', out, '-k', '2', '-o', join(folder, 'imported.artifact.safetensors'), '--quiet'))
        .code,
    ).toBe(0)
  })

  it.each([
    [['trace'], /import/],
    [['trace', 'import', '--format', 'npz'], /vllm, sglang/],
    [
      ['trace', 'import', '--format', 'sglang', '-i', 'a', '-o', 'b', '--experts', '8'],
      /--layers and --top-k/,
    ],
  ])('rejects wrong usage with exit code 2: %j', async (args, message) => {
    const { code, err } = await eldr(...args)
    expect([code, err]).toEqual([2, expect.stringMatching(message)])
  })
})
