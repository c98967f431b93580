/**
 * Workers with the bundled model, as processes: the API of any worker, two legs with real tensors, bad input.
 */
import OpenAI from 'openai'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { readHandoffCounts } from '../../src/wire/counts.ts'
import { tiny6, TINY6 } from '../tiny-support.ts'
import { killAll, leftovers, startWorkerProcess, type WorkerProcess } from './processes.ts'

const SHAPE = { layers: 6, experts: 64, topK: 8 }
const ASK = {
  do_remote_decode: true,
  do_remote_prefill: false,
  remote_engine_id: null,
  remote_block_ids: null,
  remote_host: null,
  remote_port: null,
}
const TEXTS = [
  'import argparse\nimport json\n\n\ndef load_config(path: str)',
  'The patient was admitted with chest pain and',
  'Die Vorschriften dieses Gesetzes gelten für',
  '在本教程中，你将学习如何',
  'a',
  'Let $X$ be a scheme. '.repeat(40),
]

interface Answer {
  choices: { text: string; finish_reason: string; stop_reason: number | null; token_ids: number[] | null }[]
  usage: { prompt_tokens: number; completion_tokens: number }
  kv_transfer_params: (Record<string, unknown> & { eldr?: unknown }) | null
}

let prefill: WorkerProcess
let decode: WorkerProcess
let alone: WorkerProcess
beforeAll(async () => {
  const tiny = ['--backend', 'tiny', '--blocks', '600']
  ;[prefill, decode, alone] = await Promise.all([
    startWorkerProcess(...tiny, '--role', 'prefill', '--max-num-batched-tokens', '100'),
    startWorkerProcess(...tiny, '--role', 'decode', '--block-size', '7', '--blocks', '2000'),
    startWorkerProcess(...tiny, '--model', TINY6, '--served-model-name', 'small'),
  ])
})
afterAll(killAll)
afterEach(async () => {
  const left = await leftovers(prefill, decode, alone)
  if (left.length > 0) throw new Error(`left behind: ${left.join(', ')}`)
})

const answerOf = async (answer: Promise<Response>) => (await (await answer).json()) as Answer
async function bothLegs(body: object): Promise<Answer> {
  const first = await answerOf(
    prefill.post('/v1/completions', { ...body, max_tokens: 1, kv_transfer_params: ASK }),
  )
  const { eldr, ...params } = first.kv_transfer_params!
  const counts = readHandoffCounts(eldr, { ...SHAPE, minCovered: 1, recentHalfLife: 64 })
  expect(counts).toMatchObject({ tokens: first.usage.prompt_tokens, covered: first.usage.prompt_tokens })
  return answerOf(decode.post('/v1/completions', { ...body, kv_transfer_params: params }))
}

describe('a request in two legs through processes with a model', () => {
  it('has the same text and tokens as on one worker, greedy and sampled, concurrently', async () => {
    const bodies = TEXTS.flatMap((prompt, seed) => [
      { prompt, temperature: 0 },
      { prompt, temperature: 0.9, top_p: 0.95, seed },
    ]).map(body => ({ ...body, max_tokens: 24, return_token_ids: true }))
    const [one, two] = await Promise.all([
      Promise.all(bodies.map(body => answerOf(alone.post('/v1/completions', body)))),
      Promise.all(bodies.map(bothLegs)),
    ])
    expect(two.map(({ choices }) => choices)).toEqual(one.map(({ choices }) => choices))
    expect(one.every(({ choices: [choice] }) => choice!.token_ids!.length > 0)).toBe(true)
    expect(new Set(one.map(({ choices: [choice] }) => choice!.text)).size).toBeGreaterThan(8)
  })

  it('has the text of the engine in this process', async () => {
    const { tokenizer } = await tiny6()
    const { choices } = await bothLegs({
      prompt: TEXTS[0],
      temperature: 0,
      max_tokens: 8,
      return_token_ids: true,
    })
    expect(tokenizer.decode(choices[0]!.token_ids!.filter(id => !tokenizer.endsText(id)))).toBe(
      choices[0]!.text,
    )
    expect(choices[0]!.text).toContain(':')
  })
})

describe('a worker with a model', () => {
  it('applies the model’s chat template, streams whole characters, and reports the stop reason', async () => {
    const client = new OpenAI({ baseURL: `${alone.url}/v1`, apiKey: 'none', maxRetries: 0 })
    const messages = [{ role: 'user' as const, content: '你好，请问什么是合同？' }]
    const options = { model: 'small', messages, max_tokens: 200, temperature: 0.8, seed: 3 }
    const whole = await client.chat.completions.create(options)
    const stream = await client.chat.completions.create({ ...options, stream: true })
    let text = ''
    for await (const { choices } of stream) text += choices[0]?.delta.content ?? ''
    expect(text).toBe(whole.choices[0]!.message.content)
    expect(text.length).toBeGreaterThan(0)
    const choice = whole.choices[0]! as { finish_reason: string; stop_reason?: number | null }
    expect(choice.finish_reason === 'length' || choice.stop_reason === 3 || choice.stop_reason === null).toBe(
      true,
    )
  })

  it('uses the sampling defaults of generation_config.json', async () => {
    const body = { prompt: TEXTS[1], max_tokens: 12, seed: 11 }
    const said = await answerOf(alone.post('/v1/completions', body))
    const told = await answerOf(alone.post('/v1/completions', { ...body, temperature: 0.8, top_k: 50 }))
    const plain = await answerOf(alone.post('/v1/completions', { ...body, temperature: 1, top_k: 0 }))
    expect(said.choices).toEqual(told.choices)
    expect(said.choices).not.toEqual(plain.choices)
  })

  it('detokenizes special tokens as vLLM does, and writes tokens as the files do', async () => {
    const prompt = '<|user|>Was ist das? 的<|end|>'
    const split = (await (await alone.post('/tokenize', { prompt, return_token_strs: true })).json()) as {
      tokens: number[]
      token_strs: string[]
    }
    expect([split.token_strs[0], split.token_strs.at(-1)]).toEqual(['<|user|>', '<|end|>'])
    expect(split.token_strs.some(text => text.startsWith('Ġ'))).toBe(true)
    expect(await (await alone.post('/detokenize', { tokens: split.tokens })).json()).toEqual({ prompt })
  })

  it('is not blocked by a prompt that is far too long', async () => {
    const [long, messages] = [
      ' '.repeat(40 << 20),
      Array.from({ length: 500_000 }, () => ({ role: 'user', content: 'a' })),
    ]
    const bodies: [string, object][] = [
      ['/v1/completions', { prompt: long }],
      ['/tokenize', { prompt: long }],
      ['/v1/chat/completions', { messages }],
    ]
    for (const [path, body] of bodies) {
      const answer = await alone.post(path, body)
      expect(answer.status).toBe(400)
      expect(await answer.text()).toMatch(
        /maximum context length is 2048 tokens.*at least \d{5,} input tokens/,
      )
    }
  })

  it('refuses unsupported requests and continues', async () => {
    const { tokenizer } = await tiny6()
    const long = Array.from(tokenizer.encode('word '.repeat(2_100)))
    const bad: [object, string][] = [
      [{ prompt: [5, 8_192] }, 'out of vocabulary'],
      [{ prompt: long }, 'maximum context length is 2048'],
      [{ prompt: 'a', max_tokens: 4_000 }, 'maximum context length is 2048'],
      [{ prompt: 'a', temperature: -1 }, 'temperature'],
      [{ prompt: 'a', temperature: 'hot' }, 'valid number'],
      [{ prompt: 'a', top_p: 0 }, 'top_p'],
      [{ prompt: 'a', top_k: -7 }, 'top_k'],
      [{ prompt: 'a', top_k: 1.5 }, 'valid integer'],
      [{ prompt: 'a', repetition_penalty: 1.2 }, 'does not support repetition_penalty'],
      [{ prompt: 'a', logit_bias: { 5: 3 } }, 'does not support logit_bias'],
      [{ prompt: 'a', min_p: 0.1 }, 'does not support min_p'],
      [{ prompt: 'a', eldr_row: 1 }, 'eldr_row'],
      [{ prompt: 'a', seed: 1e30 }, '64 bits'],
    ]
    for (const [body, said] of bad) {
      const answer = await alone.post('/v1/completions', body)
      expect(answer.status).toBe(400)
      expect(await answer.text()).toContain(said)
    }
    const { choices } = await answerOf(
      alone.post('/v1/completions', { prompt: 'a', max_tokens: 3, temperature: 1e308, top_k: 2 ** 31 }),
    )
    expect(choices[0]!.finish_reason).toMatch(/length|stop/)
  })

  it('does not start with a model it cannot serve, and reports why', async () => {
    await expect(startWorkerProcess('--backend', 'tiny', '--model', '/nowhere')).rejects.toThrow(
      'ELDR_FILE_UNREADABLE',
    )
    await expect(startWorkerProcess('--backend', 'tiny', '--trace', 'a.safetensors')).rejects.toThrow(
      'ELDR_USAGE',
    )
    await expect(startWorkerProcess('--backend', 'tiny', '--pace', 'nothing')).rejects.toThrow('no profile')
    await expect(startWorkerProcess('--backend', 'tiny', '--max-model-len', '4096')).rejects.toThrow(
      '2048 positions',
    )
    await expect(startWorkerProcess('--pace', 'real')).rejects.toThrow('--backend tiny')
    await expect(startWorkerProcess('--backend', 'tiny', '--profile', 'h200-first')).rejects.toThrow(
      'with --pace',
    )
    await expect(startWorkerProcess('--backend', 'tiny', '--pace', 'real', '--speed', '2')).rejects.toThrow(
      'Remove --speed',
    )
    await expect(startWorkerProcess('--backend', 'tiny', '--speed', '2')).rejects.toThrow('Remove --speed')
  })

  it('keeps the profile’s time for the experts that are active', async () => {
    const paced = await startWorkerProcess('--backend', 'tiny', '--pace', 'h200-first', '--speed', '0.25')
    const body = { prompt: TEXTS[0], temperature: 0, max_tokens: 40, ignore_eos: true }
    const answer = await answerOf(paced.post('/v1/completions', body))
    expect(answer.choices).toEqual((await answerOf(alone.post('/v1/completions', body))).choices)
    const { timing } = (await paced.state()).stats
    expect(timing.modelledMs).toBeGreaterThan(0)
    // Never faster than modelled, except for what the first step of a run may catch up.
    expect(timing.takenMs).toBeGreaterThan(0.95 * timing.modelledMs)
    await paced.stop()
  })
})
