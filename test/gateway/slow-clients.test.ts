/** Clients that are slow to send their headers or bodies, or send nothing. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Cluster, startCluster } from './cluster.ts'
import { postBytes, RawClient } from './raw-socket.ts'
import { gate } from './watching.ts'

const PROMPT = '{"prompt":"hello","max_tokens":3}'
const STREAM = '{"prompt":"hello","max_tokens":3,"stream":true}'
const PART_OF_HEAD = 'GET /ver'

let cluster: Cluster
const start = async (headersTimeoutMs: number, bodyTimeoutMs: number) => {
  const server = { headersTimeoutMs, bodyTimeoutMs, keepAliveMs: 2_000 }
  cluster = await startCluster({ prefill: 1, decode: 1, config: { server } })
}

/**
 * Resolves when the timeout for headers has expired for everything that was sent before: another client,
 * which connects now and sends a part of its headers, has been disconnected.
 */
async function timeoutExpired(): Promise<void> {
  const answers = await new RawClient(cluster.url).send(PART_OF_HEAD).toEnd()
  expect(answers.map(({ status }) => status)).toEqual([408])
}

describe('a client that is too slow to send', () => {
  beforeAll(() => start(300, 600))
  afterAll(() => cluster.stop())

  it.each([
    ['its headers', 'POST /v1/completions HTTP/1.1\r\nHost: a\r\nX-A: '],
    ['its body', postBytes(PROMPT).slice(0, -5)],
    [
      'its chunks',
      'POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"pro',
    ],
  ])('%s gets a 408, and its connection is closed', async (_, bytes) => {
    const answers = await new RawClient(cluster.url).send(bytes).toEnd()
    expect(answers.map(({ status, headers }) => [status, headers['connection']])).toEqual([[408, 'close']])
    expect(JSON.parse(answers[0]!.body)).toMatchObject({ error: { code: 'ELDR_CLIENT_SLOW' } })
    await cluster.idle()
  })

  it('anything at all is disconnected', async () => {
    expect((await new RawClient(cluster.url).toEnd()).map(({ status }) => status)).toEqual([408])
  })
})

describe('a client of a gateway with timeouts for sending', () => {
  // Long enough for a complete request of a process that is held up for a moment.
  beforeAll(() => start(3_000, 3_000))
  afterAll(() => cluster.stop())

  it('gets the whole response to its first request before the 408 for its slow second request', async () => {
    const { opened: until, open } = gate()
    cluster.decodes[0]!.failNext({ kind: 'hang', after: 'tokens', tokens: 1, until })
    const raw = new RawClient(cluster.url).send(`${postBytes(STREAM)}${PART_OF_HEAD}`)
    await raw.until(text => text.includes('data: '))
    await timeoutExpired()
    expect(raw.text).not.toContain('HTTP/1.1 408')
    open()
    const answers = await raw.toEnd()
    expect(answers.map(({ status }) => status)).toEqual([200, 408])
    expect(answers[0]!.body).toContain('[DONE]')
  })

  it('that has sent its whole request may wait any time for the response', async () => {
    const { opened: until, open } = gate()
    cluster.decodes[0]!.failNext({ kind: 'hang', after: 'request', until })
    const raw = new RawClient(cluster.url).send(postBytes(PROMPT))
    await cluster.decodes[0]!.waitForActive(1)
    await timeoutExpired()
    expect([raw.text, raw.ended]).toEqual(['', false])
    open()
    expect((await raw.answer()).status).toBe(200)
    raw.leave()
  })

  it('gets a 504 at its own deadline, even if its body is incomplete', async () => {
    const bytes = postBytes(PROMPT, 'X-Request-Timeout-Ms: 50\r\n').slice(0, -5)
    const raw = new RawClient(cluster.url).send(bytes)
    expect(await raw.answer()).toMatchObject({
      status: 504,
      headers: { 'x-eldr-error-code': 'ELDR_DEADLINE' },
    })
    raw.leave()
  })
})
