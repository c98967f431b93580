import { describe, expect, it } from 'vitest'
import { parseWorkload } from '../sim/recorded-workload.ts'
import { synthetic, traceSource, workloadSource } from './synthetic-sources.ts'
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

describe('bodyOf', () => {
  it('requests a stream with usage, a fixed length, and the row if there is one', () => {
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

  it('leaves out ignore_eos without a length or if disabled, and lets other fields override', () => {
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

  it('rejects prompts that the API does not support', () => {
    expect(() => bodyOf({ prompt: Int32Array.of(1) }, CHAT)).toThrow(/token ids.*ELDR_USAGE/)
    expect(() => bodyOf({ prompt: { messages: [] } }, COMPLETIONS)).toThrow(/messages.*ELDR_USAGE/)
  })
})

describe('synthetic prompts', () => {
  it('depend only on seed and index, not on the order of calls', () => {
    const [one, two, other] = [synthetic(SPEC), synthetic(SPEC), synthetic({ ...SPEC, seed: 6 })]
    const later = two.request(7)
    for (const index of [0, 3, 7]) expect(one.request(index)).toEqual(two.request(index))
    expect(one.request(7)).toEqual(later)
    expect(one.request(7)).not.toEqual(other.request(7))
    expect(one.request(7)).not.toEqual(one.request(8))
  })

  it('have the given length and begin with one of the shared prefixes', () => {
    const source = synthetic(SPEC)
    const prompts = Array.from({ length: 60 }, (_, i) => idsOf(source.request(i).prompt))
    for (const ids of prompts) expect(ids).toHaveLength(40)
    expect(new Set(prompts.map(ids => ids.slice(0, 16).join())).size).toBe(3)
    expect(new Set(prompts.map(ids => ids[16])).size).toBeGreaterThan(50)
    const words = synthetic({ ...SPEC, form: 'text' })
    expect((words.request(0).prompt as string).split(' ')).toHaveLength(40)
  })
})

describe('prompts of a trace', () => {
  const rows = { file: 'x/trace.safetensors', promptTokens: [4, 0, 6], decodeSteps: [10, 0, 3] }

  it('follow its rows in order, start over, and have one token more than decode steps', () => {
    const source = traceSource(rows, 'ids', 1)
    expect(
      [0, 1, 2, 3]
        .map(index => source.request(index))
        .map(({ row, maxTokens, prompt }) => [row, maxTokens, idsOf(prompt).length]),
    ).toEqual([
      [0, 11, 4],
      [1, 1, 1],
      [2, 4, 6],
      [0, 11, 4],
    ])
    expect(source.request(0)).toEqual(source.request(3))
  })

  it('follow a list of rows if there is one', () => {
    expect(
      [0, 1, 2].map(index => traceSource(rows, 'ids', 1, Int32Array.of(2, 0)).request(index).row),
    ).toEqual([2, 0, 2])
  })
})

describe('prompts of a recorded workload', () => {
  it('share exactly the blocks that its lines share', () => {
    const line = (time: number, ids: number[]) =>
      JSON.stringify({ timestamp: time, input_length: 1100, output_length: 7, hash_ids: ids })
    const source = workloadSource(
      parseWorkload('w.jsonl', [line(0, [1, 2, 3]), line(5, [1, 4, 5])].join('\n')),
      'ids',
      2,
    )
    const [a, b] = [idsOf(source.request(0).prompt), idsOf(source.request(1).prompt)]
    expect([a.length, b.length, source.request(0).maxTokens]).toEqual([1100, 1100, 7])
    expect(a.slice(0, 512)).toEqual(b.slice(0, 512))
    expect(a.slice(512, 1024)).not.toEqual(b.slice(512, 1024))
  })
})

describe('prompt file', () => {
  it('is read line by line; max_tokens of a line overrides the default', () => {
    const source = parsePrompts(
      'p.jsonl',
      '{"prompt": "a"}\n\n{"prompt": [1, 2], "max_tokens": 3}\n',
      'completions',
      50,
    )
    expect([0, 1, 2].map(index => source.request(index))).toEqual([
      { prompt: 'a', maxTokens: 50 },
      { prompt: [1, 2], maxTokens: 3 },
      { prompt: 'a', maxTokens: 50 },
    ])
    // `eldr calibrate` reads the same files.
    expect(parsePrompts('p.jsonl', '{"prompt": "a", "domain": "law"}', 'completions', 9).request(0)).toEqual({
      prompt: 'a',
      maxTokens: 9,
    })
    const chat = parsePrompts(
      'p.jsonl',
      '{"messages": [{"role": "user", "content": "a"}]}',
      'chat',
      undefined,
    )
    expect(chat.request(0)).toEqual({ prompt: { messages: [{ role: 'user', content: 'a' }] } })
  })

  it('may have an id and a domain, which are not sent', () => {
    const source = parsePrompts(
      'p.jsonl',
      '{"id": "code-001", "domain": "code", "prompt": "a"}',
      'completions',
      50,
    )
    expect(source.request(0)).toEqual({ prompt: 'a', maxTokens: 50 })
  })

  it.each([
    ['', /an empty file/],
    ['{"prompt": "a"}\nx', /"x" in line 2/],
    ['{"prompt": "a", "n": 2}', /the key "n" in line 1/],
    ['{"prompt": ""}', /in line 1/],
    ['{"prompt": "a", "max_tokens": 0}', /max_tokens that is not a whole number/],
    ['{"prompt": "a", "messages": []}', /prompt and messages/],
    ['{"messages": [{"role": "user", "content": "a"}]}', /a prompt for --api completions/],
    ['null', /in line 1/],
    ['{"prompt": "a", "domain": ""}', /the domain "" in line 1/],
  ])('with an invalid line is rejected with its number: %j', (text, message) => {
    expect(() => parsePrompts('p.jsonl', text, 'completions', undefined)).toThrow(message)
  })
})
