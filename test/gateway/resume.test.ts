/** A decode worker fails in mid-stream and another one goes on: the client sees events of one response. */
import { afterEach, describe, expect, it } from 'vitest'
import type { StoryView } from '../../src/gateway/observe/insight/wire.ts'
import type { Fault } from '../fake-worker/index.ts'
import { type Cluster, type ClusterOptions, eventsOf, startCluster } from './cluster.ts'
import { eventually, metric, stopCluster, watchTicketMetrics } from './watching.ts'

const TOKENS = 12
const IDS = { tokenIds: true }
const COMPLETION = { prompt: 'Once upon a time', max_tokens: TOKENS, temperature: 0 }
const CHAT = {
  messages: [{ role: 'user', content: 'Tell me a story' }],
  max_completion_tokens: TOKENS,
  temperature: 0,
}
const USAGE = { stream_options: { include_usage: true } }

let cluster: Cluster
afterEach(async () => {
  await watchTicketMetrics(cluster).settled()
  await stopCluster(cluster)
})

async function start(options: ClusterOptions = {}): Promise<void> {
  cluster = await startCluster({
    prefill: 1,
    decode: 3,
    decodeOptions: IDS,
    ...options,
    config: {
      routing: { policy: 'round_robin' },
      ...options.config,
      resume: { enabled: true, ...options.config?.resume },
    },
  })
}

/** The events of a stream, parsed. */
async function ask(body: object): Promise<unknown[]> {
  const path = 'messages' in body ? '/v1/chat/completions' : '/v1/completions'
  const headers = { 'x-request-id': 'one' }
  const response = await cluster.post(path, { stream: true, ...body }, { headers })
  return (await eventsOf(response)).map(data => (data === '[DONE]' ? data : parsed(data)))
}

/** Without a member that an engine may leave out. */
const parsed = (data: string) =>
  JSON.parse(data, (name, value: unknown) =>
    name === 'prompt_tokens_details' ? undefined : value,
  ) as unknown

/** The next requests to decode workers get these faults, each once. */
function strike(...faults: readonly Fault[]): void {
  let next = 0
  for (const worker of cluster.decodes)
    for (const [at, fault] of faults.entries())
      worker.fail(fault, { match: ({ isGeneration }) => isGeneration && next === at && ++next > at })
}

const errorIn = (events: readonly unknown[]) =>
  (events.at(-1) as { error?: { code?: string } } | undefined)?.error?.code
const resumed = (cause: string) => metric(cluster, 'eldr_streams_resumed_total', { cause })
const notResumed = (reason: string) => metric(cluster, 'eldr_streams_not_resumed_total', { reason })

const REQUESTS: [string, object][] = [
  ['a completion', COMPLETION],
  ['a completion with usage', { ...COMPLETION, ...USAGE }],
  ['a completion of ids', { ...COMPLETION, prompt: [1, 2, 3] }],
  ['a chat', CHAT],
  ['a chat with usage', { ...CHAT, ...USAGE }],
  ['a completion whose client wants the ids', { ...COMPLETION, return_token_ids: true }],
  ['a completion with stop strings', { ...COMPLETION, stop: ['##'] }],
]
const BREAKS: [string, Fault, cause: string][] = [
  ['resets the connection', { kind: 'reset', after: 'tokens', tokens: 5 }, 'reset'],
  ['is cut within an event', { kind: 'truncate', tokens: 5 }, 'reset'],
  ['ends without [DONE]', { kind: 'close', tokens: 5 }, 'early_end'],
  ['sends an error event', { kind: 'error_event', tokens: 5 }, 'error_event'],
  ['fails after its first token', { kind: 'reset', after: 'tokens', tokens: 1 }, 'reset'],
  ['fails before its last token', { kind: 'reset', after: 'tokens', tokens: TOKENS - 1 }, 'reset'],
  ['ends after its last token', { kind: 'close', tokens: TOKENS }, 'early_end'],
]

describe.each(REQUESTS)('%s', (_, body) => {
  it.each(BREAKS)('goes on if its worker %s', async (_name, fault, cause) => {
    await start()
    const whole = await ask(body)
    expect(whole.at(-1)).toBe('[DONE]')
    strike(fault)
    expect(await ask(body)).toEqual(whole)
    expect(await resumed(cause)).toBe(1)
    const route = 'messages' in body ? 'chat' : 'completions'
    expect(await metric(cluster, 'eldr_requests_total', { route, outcome: 'ok' })).toBe(2)
  })
})

describe('a resumed stream', () => {
  it('does not show token ids unless the client wants them', async () => {
    await start()
    const text = JSON.stringify(await ask({ ...CHAT, ...USAGE }))
    expect(text).not.toMatch(/token_ids":\[/)
    expect(JSON.stringify(await ask({ ...CHAT, return_token_ids: true }))).toMatch(/"token_ids":\[50000\]/)
  })

  it('goes on if its worker hangs', async () => {
    await start({ config: { timeouts: { betweenTokensMs: 300 } } })
    const whole = await ask(COMPLETION)
    strike({ kind: 'hang', after: 'tokens', tokens: 5 })
    expect(await ask(COMPLETION)).toEqual(whole)
    expect(await resumed('timeout')).toBe(1)
  })

  it('goes on a second time, and with several choices', async () => {
    await start()
    const body = { ...COMPLETION, n: 2, max_tokens: 9 }
    const texts = (events: readonly unknown[]) => {
      const said = ['', '']
      for (const event of events)
        for (const { index, text } of (event as { choices?: { index: number; text: string }[] }).choices ??
          [])
          said[index] += text
      return said
    }
    const whole = await ask(COMPLETION)
    strike({ kind: 'reset', after: 'tokens', tokens: 5 }, { kind: 'error_event', tokens: 4 })
    expect(await ask(COMPLETION)).toEqual(whole)
    const several = texts(await ask(body))
    strike({ kind: 'reset', after: 'tokens', tokens: 5 })
    expect(texts(await ask(body))).toEqual(several)
    expect(await resumed('reset')).toBe(2)
    expect(await resumed('error_event')).toBe(1)
  })

  it('is retried elsewhere if the next worker fails before its first token', async () => {
    await start()
    const whole = await ask(COMPLETION)
    strike({ kind: 'reset', after: 'tokens', tokens: 5 }, { kind: 'status', status: 500 })
    expect(await ask(COMPLETION)).toEqual(whole)
    expect(await resumed('reset')).toBe(1)
    expect(await metric(cluster, 'eldr_retries_total')).toBe(1)
  })

  it('is in the story of its request', async () => {
    await start()
    strike({ kind: 'reset', after: 'tokens', tokens: 5 })
    await ask(COMPLETION)
    const story = async () =>
      ((await (await fetch(`${cluster.url}/eldr/requests/one`)).json()) as { story: StoryView }).story
    await eventually(async () => (await story()).endMs !== undefined, 'the end of the request')
    const { legs, ...told } = await story()
    expect(told).toMatchObject({ outcome: 'ok', resumes: 1, pauseMs: expect.any(Number) as number })
    expect(legs.map(({ leg, outcome, tokens }) => [leg, outcome, tokens])).toEqual([
      ['prefill', 'handed_off', undefined],
      ['decode', 'failed', 5],
      ['prefill', 'handed_off', undefined],
      ['decode', 'served', 7],
    ])
  })

  it('asks the next worker for the rest only', async () => {
    await start()
    strike({ kind: 'reset', after: 'tokens', tokens: 5 })
    await ask({ ...CHAT, min_tokens: 7 })
    const asked = cluster.decodes.flatMap(({ requests }) =>
      requests.filter(({ isGeneration }) => isGeneration),
    )
    const last = asked.find(({ path }) => path === '/v1/completions')!
    expect(last.json).toMatchObject({ max_tokens: TOKENS - 5, min_tokens: 2, eldr_generated: 5 })
    expect((last.json as { prompt: number[] }).prompt.slice(-5)).toEqual([50000, 50001, 50002, 50003, 50004])
    expect(last.json).not.toHaveProperty('messages')
  })

  it('ends with the error if no other worker is left, or as often as allowed, or if its client left', async () => {
    await start({ decode: 2, config: { resume: { maxPerRequest: 1 } } })
    const fault: Fault = { kind: 'reset', after: 'tokens', tokens: 3 }
    strike(fault, fault)
    const events = await ask(COMPLETION)
    expect(events).toHaveLength(7)
    expect(errorIn(events)).toBe('ELDR_STREAM_BROKEN')
    expect(await notResumed('limit')).toBe(1)
    await cluster.decodes[1]!.refuse()
    cluster.decodes[0]!.fail(fault)
    expect(errorIn(await ask(COMPLETION))).toBe('ELDR_STREAM_BROKEN')
    expect((await notResumed('no_worker')) + (await notResumed('failed'))).toBe(1)
  })

  it('ends with its client, who leaves while the prompt is prefilled again', async () => {
    await start()
    strike({ kind: 'reset', after: 'tokens', tokens: 3 })
    const [prefill] = cluster.prefills
    prefill!.fail({ kind: 'hang', after: 'request' }, { match: ({ json }) => 'eldr_generated' in json })
    const leaving = new AbortController()
    const response = await cluster.post(
      '/v1/completions',
      { ...COMPLETION, stream: true },
      { signal: leaving.signal },
    )
    await prefill!.waitFor(({ held }) => held === 1)
    leaving.abort()
    await response.text().catch(() => {})
    await eventually(
      async () => (await metric(cluster, 'eldr_requests_total', { outcome: 'client_gone' })) === 1,
      'the end of the request',
    )
    expect(await metric(cluster, 'eldr_error_answers_total')).toBe(0)
  })

  it('ends with the error at the deadline of its client', async () => {
    await start()
    strike({ kind: 'reset', after: 'tokens', tokens: 3 })
    cluster.prefills[0]!.fail(
      { kind: 'hang', after: 'request' },
      { match: ({ json }) => 'eldr_generated' in json },
    )
    const response = await cluster.post(
      '/v1/completions',
      { ...COMPLETION, stream: true },
      { headers: { 'x-request-timeout-ms': '1500' } },
    )
    expect((await eventsOf(response)).at(-1)).toContain('ELDR_DEADLINE')
  })
})

describe('a broken stream is not resumed', () => {
  const FAULT: Fault = { kind: 'reset', after: 'tokens', tokens: 5 }

  it.each<[string, object]>([
    ['guided', { response_format: { type: 'json_object' } }],
    ['guided', { structured_outputs: { regex: 'a' } }],
    ['guided', { guided_json: {} }],
    ['logprobs', { logprobs: 2 }],
    ['penalties', { presence_penalty: 0.5 }],
    ['penalties', { repetition_penalty: 1.1 }],
    ['field', { bad_words: ['a'] }],
    ['field', { some_new_field: 1 }],
    ['sampled', { temperature: 1 }],
    ['sampled', { temperature: undefined }],
    ['sampled', { temperature: 0.5, seed: 4 }],
    ['tools', { ...CHAT, prompt: undefined, tools: [{ type: 'function', function: { name: 'f' } }] }],
    [
      'multimodal',
      {
        prompt: undefined,
        messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'a' } }] }],
      },
    ],
  ])('because of %s: %j', async (reason, fields) => {
    await start()
    strike(FAULT)
    const events = await ask({ ...COMPLETION, ...fields })
    expect(errorIn(events)).toBe('ELDR_STREAM_BROKEN')
    expect(await notResumed(reason)).toBe(1)
    expect(await metric(cluster, 'eldr_streams_resumed_total')).toBe(0)
  })

  it('if its worker sends no ids, if it is too long, or if resumption is off', async () => {
    await start({ decodeOptions: {} })
    strike(FAULT)
    expect(errorIn(await ask(COMPLETION))).toBe('ELDR_STREAM_BROKEN')
    expect(await notResumed('no_ids')).toBe(1)
    await stopCluster(cluster)
    await start({ config: { resume: { maxTokens: 7 } } })
    strike(FAULT)
    expect(errorIn(await ask(COMPLETION))).toBe('ELDR_STREAM_BROKEN')
    expect(await notResumed('too_long')).toBe(1)
    await stopCluster(cluster)
    await start({ config: { resume: { enabled: false } } })
    strike(FAULT)
    expect(errorIn(await ask(COMPLETION))).toBe('ELDR_STREAM_BROKEN')
    const [request] = cluster.decodes.flatMap(({ requests }) => requests.filter(each => each.isGeneration))
    expect(request!.json).not.toHaveProperty('return_token_ids')
  })

  it('unless resume.sampled allows it, for a sampled response', async () => {
    await start({ config: { resume: { sampled: true } } })
    strike(FAULT)
    expect((await ask({ ...COMPLETION, temperature: 1 })).at(-1)).toBe('[DONE]')
    expect(await resumed('reset')).toBe(1)
  })

  it('if the budget is spent: the other workers are not stormed', async () => {
    const breaker = { consecutiveFailures: 1_000, windowRequests: 1_000 }
    await start({ decode: 5, config: { breaker } })
    for (const worker of cluster.decodes) worker.fail({ kind: 'error_event', tokens: 1 })
    for (let request = 0; request < 8; request++)
      expect(errorIn(await ask(COMPLETION))).toBe('ELDR_STREAM_BROKEN')
    // Ten are saved at the start, and each request saves one more.
    expect(await resumed('error_event')).toBe(18)
    expect(await notResumed('budget')).toBeGreaterThan(0)
  })
})
