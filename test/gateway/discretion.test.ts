/** What clients and the log get to know when things fail: never an address, a stack trace or somebody's text. */
import { Writable } from 'node:stream'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Settings } from '../../src/gateway/config/settings.ts'
import { createLog } from '../../src/gateway/observe/log/log.ts'
import { type Gateway, startGateway } from '../../src/gateway/app/start-gateway.ts'
import type { Fault } from '../fake-worker/index.ts'
import { type Cluster, startCluster } from './cluster.ts'

const PROMPT = 'a prompt that is nobody else’s business'
const ANSWER = 'and an answer that is neither'
/** What a worker might say of its troubles. */
const TROUBLE = `Traceback (most recent call last): File "/opt/vllm/engine.py", line 12 at 10.1.2.3:8000 http://10.1.2.3:8000 while reading ${PROMPT}`

let cluster: Cluster
let gateway: Gateway
let logged = ''
beforeAll(async () => {
  cluster = await startCluster({
    config: {
      timeouts: { prefillMs: 150, firstTokenMs: 150, betweenTokensMs: 150, requestMs: 2_000 },
      retries: { max: 1 },
    },
  })
  // The same workers behind a gateway that says all it ever says.
  const { settings } = cluster.gateway.context
  const talkative: Settings = {
    ...settings,
    server: { ...settings.server, apiKeys: ['a-secret-key'] },
    observe: { ...settings.observe, logLevel: 'debug' },
    breaker: { ...settings.breaker, consecutiveFailures: 1_000, windowRequests: 100_000 },
    retries: { ...settings.retries, budgetShare: 1 },
  }
  const out = new Writable({
    write(chunk: Buffer, _, done) {
      logged += chunk.toString()
      done()
    },
  }) as unknown as typeof process.stderr
  gateway = await startGateway(talkative, createLog({ logLevel: 'debug', logFormat: 'json' }, out))
  const { registry } = gateway.context
  await new Promise<void>(resolve => {
    const ready = () =>
      ['prefill', 'decode'].every(
        role => registry.candidates(role as 'prefill', performance.now()).length === 2,
      )
    const unsubscribe = registry.subscribe(() => ready() && (unsubscribe(), resolve()))
  })
})
afterAll(async () => {
  await gateway.stop()
  await cluster.stop()
})

const post = (path: string, body: object | string, headers: Record<string, string> = {}) =>
  fetch(`${gateway.url}${path}`, {
    method: 'POST',
    headers: { authorization: 'Bearer a-secret-key', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  })

const COMPLETION = { prompt: PROMPT, max_tokens: 4 }
const CHAT = { messages: [{ role: 'user', content: PROMPT }], max_tokens: 4 }
const ways = [
  ['/v1/completions', COMPLETION],
  ['/v1/completions', { ...COMPLETION, stream: true }],
  ['/v1/completions', { ...COMPLETION, n: 2 }],
  ['/v1/completions', { ...COMPLETION, prompt: [PROMPT, PROMPT], stream: true }],
  ['/v1/completions', { ...COMPLETION, max_tokens: 1 }],
  ['/v1/completions', { ...COMPLETION, best_of: 2, use_beam_search: true }],
  ['/v1/chat/completions', CHAT],
  ['/v1/chat/completions', { ...CHAT, stream: true }],
  ['/v1/responses', { input: PROMPT }],
  ['/tokenize', { prompt: PROMPT }],
] as const

const faults: Fault[] = [
  { kind: 'status', status: 500, message: TROUBLE },
  { kind: 'status', status: 503, message: TROUBLE },
  { kind: 'status', status: 429, message: TROUBLE },
  { kind: 'garbage', bytes: TROUBLE },
  {
    kind: 'garbage',
    bytes: `HTTP/1.1 307 Temporary Redirect\r\nlocation: http://10.1.2.3:8000\r\ncontent-length: 0\r\n\r\n`,
  },
  { kind: 'answer', body: TROUBLE },
  { kind: 'answer', body: `{"choices":[{"text":"${ANSWER}"`, contentType: 'application/json' },
  { kind: 'answer', body: `data: {"choices":[{"text":"${ANSWER}\n\n`, contentType: 'text/event-stream' },
  { kind: 'error_event', tokens: 0, message: TROUBLE },
  { kind: 'error_event', tokens: 2, message: TROUBLE },
  { kind: 'truncate' },
  { kind: 'close' },
  { kind: 'reset', after: 'request' },
  { kind: 'reset', after: 'headers' },
  { kind: 'reset', after: 'tokens', tokens: 1 },
  { kind: 'hang', after: 'request' },
  { kind: 'hang', after: 'tokens', tokens: 1 },
]

const INDISCREET =
  /127\.0\.0\.1|10\.1\.2\.3|Traceback|\.py|\bat .*[(:]\d|node_modules|src\/|nobody else|a-secret-key|remote_/

describe('a client of a worker that fails', () => {
  it.each(faults.map(fault => [JSON.stringify(fault).slice(0, 60), fault] as const))(
    'hears nothing of how: %s',
    async (_, fault) => {
      for (const leg of [cluster.prefills, cluster.decodes]) {
        for (const worker of leg)
          worker.fail(fault, { match: ({ path }) => path !== '/health' && path !== '/metrics' })
        const answers = await Promise.all(
          ways.map(async ([path, body]) => {
            const response = await post(path, body)
            return {
              status: response.status,
              head: [...response.headers].join('\n'),
              text: await response.text().catch(() => 'broken'),
            }
          }),
        )
        for (const worker of leg) worker.clearFaults()
        for (const { status, head, text } of answers) {
          const told =
            status === 200
              ? text
                  .split('\n\n')
                  .filter(event => event.includes('"error"'))
                  .join('\n')
              : text
          expect(told).not.toMatch(INDISCREET)
          expect(head).not.toMatch(INDISCREET)
        }
      }
    },
  )

  it('or of one that is not there hears nothing of where it was', async () => {
    for (const worker of [...cluster.prefills, ...cluster.decodes]) await worker.refuse()
    for (const [path, body] of ways) {
      const response = await post(path, body)
      expect([502, 503]).toContain(response.status)
      expect(await response.text()).not.toMatch(INDISCREET)
    }
    for (const worker of [...cluster.prefills, ...cluster.decodes]) await worker.accept()
  })

  it('or that is refused hears of its own mistakes only', async () => {
    const wrong: [string, object | string][] = [
      ['/v1/completions', `{"prompt":"${PROMPT}"`],
      ['/v1/completions', `${PROMPT}`],
      ['/v1/completions', { ...COMPLETION, n: PROMPT }],
      ['/v1/completions', { ...COMPLETION, stream: PROMPT }],
      ['/v1/completions', { ...COMPLETION, n: 100_000 }],
      ['/v1/chat/completions', { prompt: PROMPT }],
      [`/nothing?${encodeURIComponent(PROMPT)}`, COMPLETION],
      ['/v1/embeddings', { input: PROMPT }],
      ['/v1/%2e/', COMPLETION],
      ['/eldr/nothing', COMPLETION],
    ]
    for (const [path, body] of wrong) {
      const response = await post(path, body)
      expect(response.status).toBeLessThan(500)
      expect(await response.text()).not.toMatch(INDISCREET)
    }
  })
})

describe('the log', () => {
  it('of all that has no prompt, answer or key in it, at its most talkative', () => {
    expect(logged.split('\n').length).toBeGreaterThan(50)
    expect(logged).toContain('"msg":"request"')
    expect(logged).not.toMatch(/nobody else|that is neither|a-secret-key|Bearer/)
  })
})
