/** Clients that wait for 100 Continue before they send a body. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Cluster, startCluster } from './cluster.ts'
import { postBytes, RawClient } from './raw-socket.ts'

let cluster: Cluster
beforeAll(async () => void (cluster = await startCluster()))
afterAll(() => cluster.stop())

const PROMPT = '{"prompt":"hello","max_tokens":3}'
const GET = 'GET /version HTTP/1.1\r\nHost: gateway\r\n\r\n'
const client = () => new RawClient(cluster.url)
const generations = () =>
  [...cluster.prefills, ...cluster.decodes].reduce(
    (sum, { counters }) => sum + counters.prefill + counters.decode,
    0,
  )

describe('a client that sends Expect: 100-continue', () => {
  const EXPECT = 'Expect: 100-continue\r\n'
  const head = (bytes: string) => bytes.slice(0, bytes.indexOf('\r\n\r\n') + 4)

  it('gets 100 Continue if the request is acceptable', async () => {
    const raw = client().send(head(postBytes(PROMPT, EXPECT)))
    await raw.until(text => text.includes('100 Continue\r\n\r\n'))
    const answers = await raw.send(PROMPT).answers(2)
    expect(answers.map(({ status }) => status)).toEqual([100, 200])
    raw.leave()
  })

  it('gets the error instead if the request would be refused, and the connection closes', async () => {
    const guarded = await startCluster({
      prefill: 1,
      decode: 1,
      config: {
        server: { apiKeys: ['secret'], maxBodyBytes: 65_536 },
        limits: { maxConcurrentRequests: 1, queueSize: 0 },
      },
    })
    const key = 'Authorization: Bearer secret\r\n'
    const long = `${key}Content-Length: 70000\r\n${EXPECT}`
    const requests: [string, number][] = [
      [head(postBytes(PROMPT, EXPECT)), 401],
      [head(postBytes(PROMPT, `${EXPECT}${key}`, '/nothing')), 404],
      [head(postBytes(PROMPT, `${EXPECT}${key}`, '/v1/embeddings')), 404],
      [head(postBytes(PROMPT, `${EXPECT}${key}`, '/health')), 405],
      [`POST /v1/completions HTTP/1.1\r\nHost: a\r\n${long}\r\n`, 413],
    ]
    guarded.decodes[0]!.fail({ kind: 'hang', after: 'request' })
    for (const [bytes, status] of requests) {
      const answers = await new RawClient(guarded.url).send(bytes).toEnd()
      expect(answers.map(answer => answer.status)).toEqual([status])
    }
    const first = new RawClient(guarded.url).send(postBytes(PROMPT, key))
    await guarded.decodes[0]!.waitForActive(1)
    const full = await new RawClient(guarded.url).send(head(postBytes(PROMPT, `${EXPECT}${key}`))).toEnd()
    expect(full.map(({ status, headers }) => [status, headers['retry-after']])).toEqual([[429, '1']])
    first.leave()
    await guarded.idle()
    await guarded.stop()
  })

  it('and does not wait for it is served', async () => {
    const answers = await client()
      .send(`${postBytes(PROMPT, EXPECT)}${GET}`)
      .answers(3)
    expect(answers.map(({ status }) => status)).toEqual([100, 200, 200])
  })

  it('gets 417 for any other expectation', async () => {
    const before = generations()
    const answers = await client()
      .send(`${postBytes(PROMPT, 'Expect: tea\r\n')}${GET}`)
      .toEnd()
    expect(answers.map(({ status }) => status)).toEqual([417])
    expect(generations()).toBe(before)
  })

  it('over HTTP/1.0 does not get 100 Continue', async () => {
    const answers = await client()
      .send(postBytes(PROMPT, EXPECT, '/v1/completions', '1.0'))
      .toEnd()
    expect(answers.map(({ status }) => status)).toEqual([200])
  })
})
