import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { temporaryFolder } from '../trace-support.ts'
import { call, errorOf, smallArtifact } from './admin-support.ts'
import { type Cluster, type ClusterOptions, SHAPE, startCluster } from './cluster.ts'

const folder = temporaryFolder()
let two = ''
beforeAll(async () => void (two = (await smallArtifact(folder.path, 2)).path))
afterAll(() => folder.remove())

let cluster: Cluster
const start = async (options: ClusterOptions = {}) => void (cluster = await startCluster(options))
afterEach(() => cluster.stop())

const ask = async (body: object, init: RequestInit) => {
  const response = await cluster.post(
    '/v1/completions',
    { prompt: 'a b c d e f g h', max_tokens: 2, ...body },
    init,
  )
  expect(response.status).toBe(200)
  return response
}

describe('GET /eldr/requests/{id}', () => {
  it('knows a request while it runs and afterwards, including its parts', async () => {
    await start({ config: { routing: { policy: 'jsq' } } })
    let release = () => {}
    const until = new Promise<void>(resolve => (release = resolve))
    for (const decode of cluster.decodes) decode.fail({ kind: 'hang', after: 'tokens', tokens: 1, until })
    const response = await ask({ stream: true, n: 2 }, { headers: { 'x-request-id': 'mine' } })
    const live = await call(cluster, 'GET', '/eldr/requests/mine')
    expect(live.json).toMatchObject({
      request: 'mine',
      live: [{ path: '/v1/completions', seconds: expect.any(Number) }],
    })
    expect(live.json.decodeWorkers).toHaveLength(2)
    expect(live.json.decisions.map(({ request }: { request: string }) => request).toSorted()).toEqual([
      'mine-0',
      'mine-1',
    ])
    release()
    await response.text()
    await cluster.idle()
    const after = await call(cluster, 'GET', '/eldr/requests/mine')
    expect(after.json).toMatchObject({
      live: [],
      decodeWorkers: [],
      decisions: [{ reason: 'least_loaded' }, {}],
    })
    expect(errorOf(await call(cluster, 'GET', '/eldr/requests/min'))).toBe('404 ELDR_REQUEST_UNKNOWN')
  })
})

describe('GET /eldr/decisions', () => {
  it('shows the newest first, with what was known of each candidate', async () => {
    await start({
      config: { routing: { policy: 'eldr', artifact: two }, observe: { decisionsKept: 3 } },
      prefillOptions: { counts: { ...SHAPE, variants: 1 } },
    })
    for (let n = 0; n < 5; n++) await (await ask({}, { headers: { 'x-request-id': `r${n}` } })).text()
    const { decisions } = (await call(cluster, 'GET', '/eldr/decisions')).json
    expect(decisions.map(({ request }: { request: string }) => request)).toEqual(['r4', 'r3', 'r2'])
    expect(decisions[0]).toMatchObject({
      policy: 'eldr',
      covered: 1,
      candidates: [{ inflight: 0, similarity: expect.any(Number) }, {}],
    })
    expect((await call(cluster, 'GET', '/eldr/decisions?limit=1')).json.decisions).toHaveLength(1)
    for (const limit of ['0', '-1', 'x', '1e9', ''])
      expect(errorOf(await call(cluster, 'GET', `/eldr/decisions?limit=${limit}`))).toBe(
        '400 ELDR_BAD_REQUEST',
      )
  })
})
