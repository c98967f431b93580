/** Headers that name workers are only for clients with access to the admin API. */
import { afterEach, describe, expect, it } from 'vitest'
import { type Cluster, startCluster } from './cluster.ts'

let cluster: Cluster
afterEach(() => cluster.stop())

const TOKEN = 'a-secret-token'

async function shown(stream: boolean, headers: Record<string, string> = {}): Promise<string[]> {
  const response = await cluster.post('/v1/completions', { prompt: 'a', max_tokens: 2, stream }, { headers })
  await response.text()
  return [...response.headers.keys()].filter(name => name.startsWith('x-eldr-'))
}

const ALL = ['x-eldr-decode-worker', 'x-eldr-prefill-worker', 'x-eldr-reason']

describe.each([true, false])('headers about workers (stream: %s)', stream => {
  it('are sent to localhost on request', async () => {
    cluster = await startCluster()
    expect(await shown(stream)).toEqual([])
    expect(await shown(stream, { 'x-eldr-debug': '1' })).toEqual(ALL)
    expect(await shown(stream, { 'x-eldr-debug': '1', 'x-forwarded-for': '192.0.2.1' })).toEqual([])
  })

  it('are sent only with the admin token if there is one', async () => {
    cluster = await startCluster({ config: { server: { adminToken: TOKEN } } })
    expect(await shown(stream, { 'x-eldr-debug': '1' })).toEqual([])
    expect(await shown(stream, { 'x-eldr-debug': TOKEN })).toEqual(ALL)
    expect(
      cluster.decodes.flatMap(({ requests }) => requests).some(({ headers }) => 'x-eldr-debug' in headers),
    ).toBe(false)
  })

  it('are sent to every client if configured', async () => {
    cluster = await startCluster({ config: { observe: { debugHeaders: true } } })
    expect(await shown(stream)).toEqual(ALL)
    const [worker] = cluster.decodes
    const { headers } = await cluster.post('/v1/completions', { prompt: 'a', max_tokens: 2 })
    expect([worker!.url, cluster.decodes[1]!.url].map(url => new URL(url).host)).toContain(
      headers.get('x-eldr-decode-worker'),
    )
  })
})
