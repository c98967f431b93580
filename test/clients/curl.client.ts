/** curl: what people try first. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Cluster, startCluster } from '../gateway/cluster.ts'
import { has, run } from './tools.ts'

describe.runIf(has('curl', 'curl', '--version'))('curl', () => {
  let cluster: Cluster
  beforeAll(
    async () =>
      void (cluster = await startCluster({
        decodeOptions: { gapMs: 5 },
        config: { server: { apiKeys: ['right'], maxBodyBytes: 65_536 } },
      })),
  )
  afterAll(() => cluster.stop())

  const BODY = '{"model":"fake","prompt":"hello","max_tokens":4}'
  const STREAM = '{"model":"fake","prompt":"hello","max_tokens":4,"stream":true}'
  const curl = (path: string, ...args: string[]) =>
    run('curl', [
      '-sS',
      '-w',
      '\n%{http_code} %{num_connects}',
      '-H',
      'Authorization: Bearer right',
      `${cluster.url}${path}`,
      ...args,
    ])

  it('gets a response, and a stream line by line', async () => {
    const whole = await curl('/v1/completions', '-d', BODY)
    expect([whole.code, whole.out]).toEqual([0, expect.stringMatching(/"completion_tokens":4[^]*\n200 1$/)])
    const stream = await curl('/v1/completions', '-N', '-d', STREAM)
    expect(stream.out.match(/^data: /gm)).toHaveLength(5)
    expect(stream.out).toContain('data: [DONE]')
  })

  it('sends large bodies after 100 Continue, and chunked bodies', async () => {
    const large = JSON.stringify({ prompt: 'a'.repeat(60_000), max_tokens: 2 })
    const continued = await run(
      'curl',
      [
        '-sSv',
        '-H',
        'Authorization: Bearer right',
        '-H',
        'Expect: 100-continue',
        `${cluster.url}/v1/completions`,
        '-d',
        '@-',
      ],
      { input: large },
    )
    expect(continued.err).toMatch(/< HTTP\/1\.1 100 Continue[^]*< HTTP\/1\.1 200 OK/)
    const chunked = await run(
      'curl',
      [
        '-sS',
        '-H',
        'Authorization: Bearer right',
        '-H',
        'Transfer-Encoding: chunked',
        `${cluster.url}/v1/completions`,
        '-d',
        '@-',
      ],
      { input: large },
    )
    expect(chunked.out).toContain('"completion_tokens":2')
  })

  it('reads the 413 error, although it has not sent all of its body', async () => {
    const huge = await run(
      'curl',
      [
        '-sS',
        '-w',
        '\n%{http_code}',
        '-H',
        'Authorization: Bearer right',
        '-H',
        'Expect:',
        `${cluster.url}/v1/completions`,
        '-d',
        '@-',
      ],
      { input: 'a'.repeat(30_000_000) },
    )
    expect(huge.out).toMatch(/ELDR_BODY_TOO_LARGE[^]*\n413$/)
  })

  it('reuses one connection for two requests, and sends HEAD requests', async () => {
    const twice = await curl('/v1/models', `${cluster.url}/v1/models`)
    expect(twice.out).toMatch(/200 1[^]*200 0$/)
    const head = await curl('/v1/models', '-I')
    expect(head.out).toMatch(/^HTTP\/1\.1 200 OK\r\n[^]*content-length: \d+/)
  })

  it('sees errors by its exit code with --fail', async () => {
    expect((await curl('/nothing', '--fail-with-body', '-d', BODY)).code).toBe(22)
    expect((await run('curl', ['-sS', '-f', `${cluster.url}/v1/models`])).code).toBe(22)
  })

  it('uses HTTP/1.0, and proxy-style requests', async () => {
    expect((await curl('/v1/completions', '--http1.0', '-d', STREAM)).out).toMatch(/\[DONE\][^]*200 1$/)
    const proxied = await run('curl', ['-sS', '-x', cluster.url, 'http://elsewhere.example/version'])
    expect(proxied.out).toContain('version')
  })

  it('that is killed during a stream leaves nothing behind', async () => {
    const long = STREAM.replace('4', '100000')
    await run(
      'curl',
      ['-sS', '-N', '-H', 'Authorization: Bearer right', `${cluster.url}/v1/completions`, '-d', long],
      { killAfterMs: 500 },
    )
    await cluster.idle()
    expect(cluster.leftovers()).toEqual({ inflight: 0, tokens: 0, active: 0 })
  })
})
