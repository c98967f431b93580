import { describe, expect, it } from 'vitest'
import { parseWorkload } from '../sim/recorded-workload.ts'
import { synthetic, traceSource, workloadSource } from './made-up-sources.ts'
import { parsePrompts } from './prompt-file.ts'
import { bodyOf } from './request-source.ts'

const COMPLETIONS = { api: 'completions', model: 'm', ignoreEos: true } as const
const CHAT = { api: 'chat', model: 'm', ignoreEos: true } as const
const SPEC = {
  form: 'ids',
  promptTokens: 40,
  outputTokens: 9,
  prefixGroups: 3,
  prefixTokens: 16,
  seed: 5,
} as const
const idsOf = (prompt: unknown) => Array.from(prompt as Int32Array)

describe('a body', () => {
  it('asks for a stream with usage, a length whatever the model would say, and a row where there is one', () => {
    expect(JSON.parse(bodyOf({ prompt: Int32Array.of(5, 6), maxTokens: 4, row: 3 }, COMPLETIONS))).toEqual({
      model: 'm',
      prompt: [5, 6],
      max_tokens: 4,
      ignore_eos: true,
      temperature: 0,
      stream: true,
      stream_options: { include_usage: true },
      eldr_row: 3,
    })
  })

  it('leaves ignore_eos out where no length is wanted or it was told to, and lets other fields win', () => {
    expect(JSON.parse(bodyOf({ prompt: 'a' }, COMPLETIONS))).not.toHaveProperty('ignore_eos')
    const body = JSON.parse(
      bodyOf(
        { prompt: 'a', maxTokens: 4 },
        { ...CHAT, ignoreEos: false, extra: { temperature: 1, top_p: 0.5 } },
      ),
    ) as object
    expect(body).toMatchObject({
      messages: [{ role: 'user', content: 'a' }],
      max_tokens: 4,
      temperature: 1,
      top_p: 0.5,
    })
    expect(body).not.toHaveProperty('ignore_eos')
  })

  it('refuses what an API cannot take', () => {
    expect(() => bodyOf({ prompt: Int32Array.of(1) }, CHAT)).toThrow(/token ids.*ELDR_USAGE/)
    expect(() => bodyOf({ prompt: { messages: [] } }, COMPLETIONS)).toThrow(/messages.*ELDR_USAGE/)
  })
})

describe('made-up prompts', () => {
  it('are the same for the same seed and number, in whatever order they are asked for, and others for another', () => {
    const [one, two, other] = [synthetic(SPEC), synthetic(SPEC), synthetic({ ...SPEC, seed: 6 })]
    const later = two.ask(7)
    for (const index of [0, 3, 7]) expect(one.ask(index)).toEqual(two.ask(index))
    expect(one.ask(7)).toEqual(later)
    expect(one.ask(7)).not.toEqual(other.ask(7))
    expect(one.ask(7)).not.toEqual(one.ask(8))
  })

  it('have their length, and begin with one of so many texts', () => {
    const source = synthetic(SPEC)
    const prompts = Array.from({ length: 60 }, (_, i) => idsOf(source.ask(i).prompt))
    for (const ids of prompts) expect(ids).toHaveLength(40)
    expect(new Set(prompts.map(ids => ids.slice(0, 16).join())).size).toBe(3)
    expect(new Set(prompts.map(ids => ids[16])).size).toBeGreaterThan(50)
    const words = synthetic({ ...SPEC, form: 'text' })
    expect((words.ask(0).prompt as string).split(' ')).toHaveLength(40)
  })
})

describe('prompts of a trace', () => {
  const rows = { file: 'x/trace.safetensors', promptTokens: [4, 0, 6], decodeSteps: [10, 0, 3] }

  it('follow its rows in order, again from the start, a token more than decode steps', () => {
    const source = traceSource(rows, 'ids', 1)
    expect(
      [0, 1, 2, 3]
        .map(index => source.ask(index))
        .map(({ row, maxTokens, prompt }) => [row, maxTokens, idsOf(prompt).length]),
    ).toEqual([
      [0, 11, 4],
      [1, 1, 1],
      [2, 4, 6],
      [0, 11, 4],
    ])
    expect(source.ask(0)).toEqual(source.ask(3))
  })

  it('follow a list of rows where there is one', () => {
    expect([0, 1, 2].map(index => traceSource(rows, 'ids', 1, Int32Array.of(2, 0)).ask(index).row)).toEqual([
      2, 0, 2,
    ])
  })
})

describe('prompts of a recorded workload', () => {
  it('share the blocks that its lines share, and no more', () => {
    const line = (time: number, ids: number[]) =>
      JSON.stringify({ timestamp: time, input_length: 1100, output_length: 7, hash_ids: ids })
    const source = workloadSource(
      parseWorkload('w.jsonl', [line(0, [1, 2, 3]), line(5, [1, 4, 5])].join('\n')),
      'ids',
      2,
    )
    const [a, b] = [idsOf(source.ask(0).prompt), idsOf(source.ask(1).prompt)]
    expect([a.length, b.length, source.ask(0).maxTokens]).toEqual([1100, 1100, 7])
    expect(a.slice(0, 512)).toEqual(b.slice(0, 512))
    expect(a.slice(512, 1024)).not.toEqual(b.slice(512, 1024))
  })
})

describe('a file of prompts', () => {
  it('is read line by line, its own max_tokens before the one for all', () => {
    const source = parsePrompts(
      'p.jsonl',
      '{"prompt": "a"}\n\n{"prompt": [1, 2], "max_tokens": 3}\n',
      'completions',
      50,
    )
    expect([0, 1, 2].map(index => source.ask(index))).toEqual([
      { prompt: 'a', maxTokens: 50 },
      { prompt: [1, 2], maxTokens: 3 },
      { prompt: 'a', maxTokens: 50 },
    ])
    // For calibrations, which read the same files.
    expect(parsePrompts('p.jsonl', '{"prompt": "a", "domain": "law"}', 'completions', 9).ask(0)).toEqual({
      prompt: 'a',
      maxTokens: 9,
    })
    const chat = parsePrompts(
      'p.jsonl',
      '{"messages": [{"role": "user", "content": "a"}]}',
      'chat',
      undefined,
    )
    expect(chat.ask(0)).toEqual({ prompt: { messages: [{ role: 'user', content: 'a' }] } })
  })

  it('may have an id and a domain, which are not sent', () => {
    const source = parsePrompts(
      'p.jsonl',
      '{"id": "code-001", "domain": "code", "prompt": "a"}',
      'completions',
      50,
    )
    expect(source.ask(0)).toEqual({ prompt: 'a', maxTokens: 50 })
  })

  it.each([
    ['', /no line/],
    ['{"prompt": "a"}\nx', /"x" in line 2/],
    ['{"prompt": "a", "n": 2}', /the key "n" in line 1/],
    ['{"prompt": ""}', /in line 1/],
    ['{"prompt": "a", "max_tokens": 0}', /max_tokens that is no whole number/],
    ['{"prompt": "a", "messages": []}', /prompt and messages/],
    ['{"messages": [{"role": "user", "content": "a"}]}', /a prompt for --api completions/],
    ['null', /in line 1/],
    ['{"prompt": "a", "domain": ""}', /the domain "" in line 1/],
  ])('that is wrong says where: %j', (text, message) => {
    expect(() => parsePrompts('p.jsonl', text, 'completions', undefined)).toThrow(message)
  })
})
