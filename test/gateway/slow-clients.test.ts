/** Clients that are slow to send their headers or bodies, or send nothing. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Cluster, startCluster } from './cluster.ts'
import { postBytes, RawClient } from './raw-socket.ts'

const PROMPT = '{"prompt":"hello","max_tokens":3}'
const STREAM = '{"prompt":"hello","max_tokens":3,"stream":true}'

describe('a client that is too slow', () => {
  let slow: Cluster
  beforeAll(
    async () =>
      void (slow = await startCluster({
        prefill: 1,
        decode: 1,
        config: { server: { headersTimeoutMs: 300, bodyTimeoutMs: 600, keepAliveMs: 2_000 } },
      })),
  )
  afterAll(() => slow.stop())

  it.each([
    ['its headers', 'POST /v1/completions HTTP/1.1\r\nHost: a\r\nX-A: '],
    ['its body', postBytes(PROMPT).slice(0, -5)],
    [
      'its chunks',
      'POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"pro',
    ],
  ])('with %s is told so, and its connection ends', async (_, bytes) => {
    const answers = await new RawClient(slow.url).send(bytes).toEnd()
    expect(answers.map(({ status, headers }) => [status, headers['connection']])).toEqual([[408, 'close']])
    expect(JSON.parse(answers[0]!.body)).toMatchObject({ error: { code: 'ELDR_CLIENT_SLOW' } })
    await slow.idle()
  })

  it('to say anything at all is let go', async () => {
    expect((await new RawClient(slow.url).toEnd()).map(({ status }) => status)).toEqual([408])
  })

  it('with its second request has the first answered to its end before', async () => {
    let goOn = () => {}
    slow.decodes[0]!.failNext({
      kind: 'hang',
      after: 'tokens',
      tokens: 1,
      until: new Promise<void>(resolve => (goOn = resolve)),
    })
    const raw = new RawClient(slow.url).send(`${postBytes(STREAM)}GET /ver`)
    await raw.until(text => text.includes('data: '))
    setTimeout(goOn, 1_000)
    const answers = await raw.toEnd()
    expect(answers.map(({ status }) => status)).toEqual([200, 408])
    expect(answers[0]!.body).toContain('[DONE]')
  })

  it('with a request of which it has sent all may wait for its answer as long as that takes', async () => {
    let goOn = () => {}
    slow.decodes[0]!.failNext({
      kind: 'hang',
      after: 'request',
      until: new Promise<void>(resolve => (goOn = resolve)),
    })
    const raw = new RawClient(slow.url).send(postBytes(PROMPT))
    setTimeout(goOn, 1_500)
    expect((await raw.answer()).status).toBe(200)
    raw.leave()
  })

  it('for its own deadline hears of that, although its body has not come', async () => {
    const bytes = postBytes(PROMPT, 'X-Request-Timeout-Ms: 50\r\n').slice(0, -5)
    const raw = new RawClient(slow.url).send(bytes)
    expect(await raw.answer()).toMatchObject({
      status: 504,
      headers: { 'x-eldr-error-code': 'ELDR_DEADLINE' },
    })
    raw.leave()
  })
})
