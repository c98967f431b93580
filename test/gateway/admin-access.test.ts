import { networkInterfaces } from 'node:os'
import { afterEach, describe, expect, it } from 'vitest'
import { call, errorOf } from './admin-support.ts'
import { type Cluster, type ClusterOptions, startCluster } from './cluster.ts'

let cluster: Cluster
const start = async (config: ClusterOptions['config'] = {}) =>
  void (cluster = await startCluster({ prefill: 1, decode: 1, config }))
afterEach(() => cluster.stop())

const ROUTES = [
  ['GET', '/eldr/workers'],
  ['POST', '/eldr/workers'],
  ['DELETE', '/eldr/workers/a'],
  ['POST', '/eldr/workers/a/drain'],
  ['POST', '/eldr/workers/a/undrain'],
  ['PUT', '/eldr/policy'],
  ['POST', '/eldr/artifact'],
  ['POST', '/eldr/refit'],
  ['GET', '/eldr/adapt'],
  ['POST', '/eldr/adapt/swap'],
  ['POST', '/eldr/adapt/undo'],
  ['GET', '/eldr/shadow'],
  ['GET', '/eldr/experiment'],
  ['POST', '/eldr/experiment'],
  ['GET', '/eldr/decisions'],
  ['GET', '/eldr/requests/a'],
  ['GET', '/eldr/config'],
  ['GET', '/eldr/log-level'],
  ['PUT', '/eldr/log-level'],
  ['GET', '/eldr/events'],
  ['GET', '/eldr/pulse'],
  ['GET', '/eldr/experts'],
  ['GET', '/eldr/plane'],
  ['GET', '/eldr/nothing'],
] as const

const bearer = (key: string) => ({ authorization: `Bearer ${key}` })
const outside = Object.values(networkInterfaces())
  .flat()
  .find(address => address?.family === 'IPv4' && !address.internal)?.address

describe('with an admin token set', () => {
  it('every route requires it, also from localhost, and client API keys are not accepted', async () => {
    await start({ server: { adminToken: 'sesame', apiKeys: ['client'] } })
    for (const [method, path] of ROUTES) {
      expect(errorOf(await call(cluster, method, path))).toBe('401 ELDR_UNAUTHORIZED')
      expect(errorOf(await call(cluster, method, path, undefined, bearer('client')))).toBe(
        '401 ELDR_UNAUTHORIZED',
      )
      expect(errorOf(await call(cluster, method, path, undefined, bearer('sesame2')))).toBe(
        '401 ELDR_UNAUTHORIZED',
      )
    }
    expect((await call(cluster, 'GET', '/eldr/workers', undefined, bearer('sesame'))).status).toBe(200)
    expect((await call(cluster, 'GET', '/eldr/workers', undefined, { 'x-api-key': 'sesame' })).status).toBe(
      200,
    )
  })

  it('the token gives no access to other routes', async () => {
    await start({ server: { adminToken: 'sesame', apiKeys: ['client'] } })
    const ask = (key: string) =>
      cluster.post('/v1/completions', { prompt: 'a', max_tokens: 2 }, { headers: bearer(key) })
    expect((await ask('sesame')).status).toBe(401)
    expect((await ask('client')).status).toBe(200)
    await cluster.idle()
  })

  it.runIf(outside !== undefined)('the token gives access from any address', async () => {
    await start({ server: { host: '0.0.0.0', adminToken: 'sesame' } })
    const url = cluster.url.replace('0.0.0.0', outside!)
    expect((await call({ url }, 'GET', '/eldr/workers', undefined, bearer('sesame'))).status).toBe(200)
    expect(errorOf(await call({ url }, 'GET', '/eldr/workers'))).toBe('401 ELDR_UNAUTHORIZED')
  })
})

describe('without an admin token', () => {
  it('localhost has access, whether clients need keys or not', async () => {
    await start({ server: { apiKeys: ['client'] } })
    expect((await call(cluster, 'GET', '/eldr/workers')).status).toBe(200)
  })

  it.runIf(outside !== undefined)(
    'other addresses have no access, except to health and metrics',
    async () => {
      await start({ server: { host: '0.0.0.0' } })
      const url = cluster.url.replace('0.0.0.0', outside!)
      for (const [method, path] of ROUTES)
        expect(errorOf(await call({ url }, method, path))).toBe('403 ELDR_FORBIDDEN')
      expect((await fetch(`${url}/metrics`)).status).toBe(200)
      expect(
        (await call({ url: cluster.url.replace('0.0.0.0', '127.0.0.1') }, 'GET', '/eldr/workers')).status,
      ).toBe(200)
    },
  )

  it('a proxy on localhost and a page of another site in a browser have no access', async () => {
    await start()
    for (const [name, value] of [
      ['x-forwarded-for', '10.0.0.1'],
      ['forwarded', 'for=10.0.0.1'],
      ['via', '1.1 proxy'],
      ['origin', 'https://elsewhere.example'],
      ['origin', 'null'],
    ] as const)
      expect(
        errorOf(await call(cluster, 'POST', '/eldr/workers/a/drain', undefined, { [name]: value })),
      ).toBe('403 ELDR_FORBIDDEN')
    const own = { origin: cluster.url }
    expect(errorOf(await call(cluster, 'POST', '/eldr/workers/a/drain', undefined, own))).toBe(
      '404 ELDR_WORKER_UNKNOWN',
    )
  })
})

describe('GET /eldr/config', () => {
  it('shows the settings in force without secrets', async () => {
    await start({
      server: { adminToken: 'sk-admin', apiKeys: ['sk-client'] },
      workers: { apiKey: 'sk-worker' },
    })
    await call(cluster, 'PUT', '/eldr/policy', { policy: 'jsq' }, bearer('sk-admin'))
    const { status, json } = await call(cluster, 'GET', '/eldr/config', undefined, bearer('sk-admin'))
    expect(status).toBe(200)
    expect(json.settings.server).toMatchObject({
      adminToken: '********',
      apiKeys: ['********'],
      maxBodyBytes: 33_554_432,
    })
    expect(json.routing).toMatchObject({
      policy: 'jsq',
      tau: 0.1,
      prefillPolicy: 'prefix_hash',
      decodeWorkers: 1,
    })
    expect(JSON.stringify(json)).not.toContain('sk-')
  })
})
