/** Error responses and the log never contain an address, a stack trace, a prompt, a response or a key. */
import { Writable } from 'node:stream'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Settings } from '../../src/gateway/config/settings.ts'
import { createLog } from '../../src/gateway/observe/log/log.ts'
import { type Gateway, startGateway } from '../../src/gateway/app/start-gateway.ts'
import type { Fault } from '../fake-worker/index.ts'
import { ManualClock } from '../manual-clock.ts'
import { type Cluster, startCluster } from './cluster.ts'

const PROMPT = 'a prompt that is private text'
const ANSWER = 'a response that is private too'
/** An error message that a worker might send. */
const TROUBLE = `Traceback (most recent call last): File "/opt/vllm/engine.py", line 12 at 10.1.2.3:8000 http://10.1.2.3:8000 while reading ${PROMPT}`

let cluster: Cluster
let gateway: Gateway
let logged = ''
let clock: ManualClock
beforeAll(async () => {
  clock = ManualClock.install()
  cluster = await startCluster({
    config: {
      timeouts: { prefillMs: 5_000, firstTokenMs: 5_000, betweenTokensMs: 5_000, requestMs: 60_000 },
      retries: { max: 1 },
      health: { intervalMs: 600_000, timeoutMs: 600_000 },
    },
  })
  // The same workers behind a gateway that logs everything.
  const { settings } = cluster.gateway.context
  const verbose: Settings = {
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
  gateway = await startGateway(verbose, createLog({ logLevel: 'debug', logFormat: 'json' }, out))
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
  clock.uninstall()
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
const requests = [
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
  /127\.0\.0\.1|10\.1\.2\.3|Traceback|\.py|\bat .*[(:]\d|node_modules|src\/|private|a-secret-key|remote_/

describe('the response of a gateway whose worker fails', () => {
  it.each(faults.map(fault => [JSON.stringify(fault).slice(0, 60), fault] as const))(
    'does not show the worker’s error: %s',
    async (_, fault) => {
      for (const leg of [cluster.prefills, cluster.decodes]) {
        for (const worker of leg)
          worker.fail(fault, { match: ({ path }) => path !== '/health' && path !== '/metrics' })
        const asked = Promise.all(
          requests.map(async ([path, body]) => {
            const response = await post(path, body)
            return {
              status: response.status,
              head: [...response.headers].join('\n'),
              text: await response.text().catch(() => 'broken'),
            }
          }),
        )
        const answers = await clock.during(asked, 50)
        for (const worker of leg) worker.clearFaults()
        for (const { status, head, text } of answers) {
          const shown =
            status === 200
              ? text
                  .split('\n\n')
                  .filter(event => event.includes('"error"'))
                  .join('\n')
              : text
          expect(shown).not.toMatch(INDISCREET)
          expect(head).not.toMatch(INDISCREET)
        }
      }
    },
  )

  it('does not show the address of a worker that cannot be reached', async () => {
    for (const worker of [...cluster.prefills, ...cluster.decodes]) await worker.refuse()
    for (const [path, body] of requests) {
      const response = await clock.during(post(path, body))
      expect([502, 503]).toContain(response.status)
      expect(await response.text()).not.toMatch(INDISCREET)
    }
    for (const worker of [...cluster.prefills, ...cluster.decodes]) await worker.accept()
  })

  it('does not repeat the text of a refused request', async () => {
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
  it('has no prompt, response or key at level debug', () => {
    expect(logged.split('\n').length).toBeGreaterThan(50)
    expect(logged).toContain('"msg":"request"')
    expect(logged).not.toMatch(/private|a-secret-key|Bearer/)
  })
})
