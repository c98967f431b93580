/**
 * Both legs through two processes: the same text as on one worker, the same counts as on a cold one, nothing
 * left behind.
 */
import OpenAI, { BadRequestError } from 'openai'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { readDecoded } from '../../src/wire/decoded-requests.ts'
import { readDecodeExperts } from '../../src/wire/decode-experts.ts'
import { readHandoffCounts } from '../../src/wire/counts.ts'
import { killAll, leftovers, startWorkerProcess, type WorkerProcess } from './processes.ts'
import { eventsOf } from './served.ts'

const SHAPE = { layers: 16, experts: 128, topK: 8 }
const EXPECTED = { ...SHAPE, minCovered: 1, recentHalfLife: 64 }
const ASK = {
  do_remote_decode: true,
  do_remote_prefill: false,
  remote_engine_id: null,
  remote_block_ids: null,
  remote_host: null,
  remote_port: null,
}

interface Answer {
  choices: { text: string; finish_reason: string; token_ids: number[] | null }[]
  usage: {
    prompt_tokens: number
    completion_tokens: number
    prompt_tokens_details: { cached_tokens: number } | null
  }
  kv_transfer_params: (Record<string, unknown> & { eldr?: unknown }) | null
}

let prefill: WorkerProcess
let decode: WorkerProcess
beforeAll(async () => {
  const flags = ['--speed', '4', '--enable-prompt-tokens-details', '--recent-half-life', '64']
  ;[prefill, decode] = await Promise.all([
    startWorkerProcess('--role', 'prefill', ...flags),
    startWorkerProcess('--role', 'decode', ...flags),
  ])
})
afterAll(killAll)
afterEach(async () => {
  const left = await leftovers(prefill, decode)
  if (left.length > 0) throw new Error(`left behind: ${left.join(', ')}`)
})

const words = (count: number, seed = 0) =>
  Array.from({ length: count }, (_, i) => 300 + ((i * 7 + seed * 13) % 500))
const answerOf = async (answer: Promise<Response>) => (await (await answer).json()) as Answer

async function firstLeg(body: object): Promise<Record<string, unknown> & { eldr?: unknown }> {
  return (
    await answerOf(prefill.post('/v1/completions', { ...body, max_tokens: 1, kv_transfer_params: ASK }))
  ).kv_transfer_params!
}

async function bothLegs(body: object): Promise<Answer> {
  const { eldr: _, ...params } = await firstLeg(body)
  return answerOf(decode.post('/v1/completions', { ...body, kv_transfer_params: params }))
}

describe('a request in two legs', () => {
  it('has the same text as on one worker, for any prompt', async () => {
    for (const [i, count] of [1, 2, 15, 16, 17, 100, 700].entries()) {
      const body = {
        prompt: words(count, i),
        max_tokens: 20,
        return_token_ids: true,
        eldr_row: i % 2 === 1 ? i : undefined,
      }
      const alone = await answerOf(prefill.post('/v1/completions', body))
      const apart = await bothLegs(body)
      expect(apart.choices).toEqual(alone.choices)
      expect(apart.usage).toMatchObject({ prompt_tokens: count, completion_tokens: 20 })
      expect(apart.kv_transfer_params).toBeNull()
    }
  })

  it('leaves its decode counts with the decode worker, by its request id, for a gateway to ask for', async () => {
    const body = { prompt: words(40), max_tokens: 12, ignore_eos: true, request_id: 'asked-for' }
    const before = readDecoded(await (await fetch(`${decode.url}/eldr/decoded`)).json(), SHAPE)!
    await bothLegs(body)
    const after = await (await fetch(`${decode.url}/eldr/decoded?after=${before.last}`)).json()
    const { last, requests } = readDecoded(after, SHAPE)!
    expect(last).toBe(before.last + 1)
    expect(requests).toMatchObject([{ id: 'asked-for', steps: 11 }])
    const [{ counts }] = requests as [(typeof requests)[0]]
    for (let layer = 0; layer < SHAPE.layers; layer++) {
      const own = counts.subarray(layer * SHAPE.experts, (layer + 1) * SHAPE.experts)
      expect(own.reduce((sum, count) => sum + count, 0)).toBe(SHAPE.topK * 11)
    }
    expect((await fetch(`${decode.url}/eldr/decoded?after=x`)).status).toBe(400)
  })

  it('is streamed by the decode worker, which applies seed, stop and end of text', async () => {
    const body = { prompt: words(50), max_tokens: 30, seed: 7 }
    const whole = (await bothLegs(body)).choices[0]!.text
    const stop = whole.split(' ').slice(4, 6).join(' ')
    const { eldr: _, ...params } = await firstLeg({ ...body, stop })
    const events = await eventsOf(
      await decode.post('/v1/completions', { ...body, stop, stream: true, kv_transfer_params: params }),
    )
    const parsed = events.slice(0, -1).map(
      event =>
        JSON.parse(event) as {
          choices: { text: string; finish_reason: string | null; stop_reason: string | null }[]
        },
    )
    expect(parsed.map(({ choices: [choice] }) => choice!.text).join('')).toBe(
      whole.slice(0, whole.indexOf(stop)),
    )
    expect(parsed.at(-1)!.choices[0]).toMatchObject({ finish_reason: 'stop', stop_reason: stop })
    expect((await bothLegs({ ...body, seed: 8 })).choices[0]!.text).not.toBe(whole)
  })

  it('hands off exact counts, cold or cached, and reports the cached tokens', async () => {
    const body = { prompt: words(333, 5), max_tokens: 4 }
    const cold = await firstLeg(body)
    const warm = await firstLeg(body)
    const longer = await firstLeg({ ...body, prompt: [...words(333, 5), ...words(64, 9)] })
    expect([cold, warm, longer].map(params => params['remote_prefill_cached_tokens'])).toEqual([0, 320, 320])
    const [a, b, c] = [cold, warm, longer].map(({ eldr }) => {
      const read = readHandoffCounts(eldr, EXPECTED)
      if ('reject' in read) throw new Error(read.reject)
      return read
    })
    expect([a!.covered, b!.covered, c!.covered]).toEqual([333, 333, 397])
    expect(b).toEqual(a)
    expect(a!.counts.subarray(0, 128).reduce((sum, count) => sum + count, 0)).toBe(8 * 333)
    // Freed by the decode legs that read them.
    for (const { eldr: _, ...params } of [cold, warm])
      expect(
        (await answerOf(decode.post('/v1/completions', { ...body, kv_transfer_params: params }))).choices,
      ).toHaveLength(1)
    const { eldr: _, ...params } = longer
    const answer = await answerOf(
      decode.post('/v1/completions', {
        ...body,
        prompt: [...words(333, 5), ...words(64, 9)],
        kv_transfer_params: params,
      }),
    )
    expect(answer.usage.prompt_tokens_details).toEqual({ cached_tokens: 320 })
  })

  it('runs concurrently with many others, each with its own text', async () => {
    const bodies = Array.from({ length: 40 }, (_, i) => ({
      prompt: words(20 + 13 * (i % 7), i),
      max_tokens: 5 + (i % 20),
      eldr_row: i,
    }))
    const together = await Promise.all(bodies.map(bothLegs))
    expect(await leftovers(prefill)).toEqual([])
    const alone = []
    for (const body of bodies) alone.push(await answerOf(prefill.post('/v1/completions', body)))
    expect(together.map(({ choices }) => choices[0]!.text)).toEqual(
      alone.map(({ choices }) => choices[0]!.text),
    )
  })

  it('is recorded for calibration by one worker', async () => {
    const answer = await answerOf(
      prefill.post('/v1/completions', {
        prompt: words(40),
        max_tokens: 9,
        eldr_row: 2,
        kv_transfer_params: { eldr: { record: 'decode' } },
      }),
    )
    const { eldr } = answer.kv_transfer_params as { eldr: { decode: unknown } }
    expect(readHandoffCounts(eldr, EXPECTED)).toMatchObject({ tokens: 40, covered: 40 })
    const decodes = readDecodeExperts(eldr.decode, SHAPE)!
    expect(decodes.steps).toBe(8)
    for (let step = 0; step < 8; step++)
      expect(new Set(decodes.ids.subarray(step * 128, step * 128 + 8)).size).toBe(8)
  })
})

describe('OpenAI’s client against a running worker', () => {
  it('gets responses, streams and errors', async () => {
    const client = new OpenAI({
      baseURL: `${decode.url}/v1`,
      apiKey: 'none',
      maxRetries: 0,
      defaultHeaders: { connection: 'close' },
    })
    const chat = {
      model: 'lab16',
      messages: [{ role: 'user' as const, content: 'Tell me a story' }],
      max_completion_tokens: 12,
    }
    const whole = await client.chat.completions.create(chat)
    expect(whole.usage).toMatchObject({ completion_tokens: 12 })
    let text = ''
    for await (const { choices } of await client.chat.completions.create({ ...chat, stream: true }))
      text += choices[0]?.delta.content ?? ''
    expect(text).toBe(whole.choices[0]!.message.content)
    await expect(
      client.chat.completions.create({ ...chat, max_completion_tokens: 1e9 }),
    ).rejects.toBeInstanceOf(BadRequestError)
  })
})
