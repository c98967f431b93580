/** Stores with access control: a user with exactly the permissions of docs/guides/replicas.md, and TLS. */
import { readFileSync } from 'node:fs'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { makeCertificates } from '../../gateway/tls-files.ts'
import { heldStream, type Replica, type Stage, startStage, until } from './gateways.ts'
import { type Store, startStore, type StoreOptions } from './store.ts'

let store: Store | undefined
let stage: Stage
beforeEach(async () => {
  stage = await startStage()
})
afterEach(async () => {
  await stage.close()
  await store?.close()
  store = undefined
})
const begin = async (options?: StoreOptions) => (store = await startStore(options))
const up = async ({ get }: Replica) =>
  ((await get('/ready')) as { replicas: { store: string } }).replicas.store === 'up'

/** Shares loads, a policy change and drains through the store. */
async function share(a: Replica, b: Replica): Promise<void> {
  await until('both to be connected', async () => (await up(a)) && (await up(b)))
  const { release, text } = await heldStream(a, stage)
  await until('the request to be seen', () => b.inflight().elsewhere === 1)
  release()
  await text()
  await until('no load anywhere', () =>
    [a, b].every(({ inflight }) => inflight().own + inflight().elsewhere === 0),
  )
  expect((await a.change('PUT', '/eldr/policy', { policy: 'power_of_two' })).status).toBe(200)
  await until('the change to be applied', () => b.gateway.control.policy === 'power_of_two')
  for (const [path, state] of [
    ['drain', 'draining'],
    ['undrain', 'ready'],
  ] as const) {
    expect((await a.change('POST', `/eldr/workers/d0/${path}`)).status).toBe(200)
    await until(
      `it to be ${state}`,
      () =>
        b.gateway.context.registry.views(performance.now()).find(({ spec }) => spec.id === 'd0')!.state ===
        state,
    )
  }
}

describe('a user', () => {
  /** The commands listed in the guide. */
  const commands = [
    ...readFileSync(new URL('../../../docs/guides/replicas.md', import.meta.url), 'utf8').matchAll(
      /The user needs (.*?) on keys/g,
    ),
  ][0]![1]!.match(/[A-Z]+/g)!
  const may = (names: readonly string[]) => [
    'on',
    '>pw',
    '~eldr:*',
    '&eldr:*',
    '-@all',
    ...names.map(name => `+${name.toLowerCase()}`),
  ]

  it('with the permissions of the guide shares everything, and the store refuses nothing', async () => {
    const { port, ask } = await begin()
    await ask('ACL', 'SETUSER', 'gateway', ...may(commands))
    const url = `redis://gateway:pw@127.0.0.1:${port}`
    const [a, b] = [await stage.replica(url), await stage.replica(url)]
    await share(a, b)
    expect(await ask('ACL', 'LOG')).toEqual([])
    for (const { metric } of [a, b])
      expect((await metric('eldr_replica_ignored_total', { reason: 'refused' })) ?? 0).toBe(0)
  })

  it('without permission to publish is logged, and requests are served', async () => {
    const { port, ask } = await begin()
    await ask('ACL', 'SETUSER', 'gateway', ...may(commands.filter(name => name !== 'PUBLISH')))
    const a = await stage.replica(`redis://gateway:pw@127.0.0.1:${port}`)
    await until(
      'the refusal to be counted',
      async () => ((await a.metric('eldr_replica_ignored_total', { reason: 'refused' })) ?? 0) > 0,
    )
    expect(a.lines.some(({ why }) => String(why).includes('NOPERM'))).toBe(true)
    expect(await (await a.post({ prompt: 'a', max_tokens: 2, stream: true })).text()).toContain('[DONE]')
  })
})

describe('TLS', () => {
  it('is used with a store whose CA is trusted, and not with another', async () => {
    const pairs = makeCertificates('store', 'other')
    const { url } = await begin({ tls: pairs.store })
    const of = (caFile: string) => ({ replicas: { caFile } })
    await share(
      await stage.replica(url, of(pairs.store.certFile)),
      await stage.replica(url, of(pairs.store.certFile)),
    )
    const stranger = await stage.replica(url, of(pairs.other.certFile))
    await until('the reason', () =>
      stranger.lines.some(({ reason }) => /self.signed|certificate/.test(String(reason))),
    )
    expect(await up(stranger)).toBe(false)
    expect(await (await stranger.post({ prompt: 'a', max_tokens: 2, stream: true })).text()).toContain(
      '[DONE]',
    )
    pairs.remove()
  })

  it('fails at startup if the CA file does not exist', async () => {
    const { url } = await begin()
    await expect(
      stage.replica(url.replace('redis', 'rediss'), { replicas: { caFile: '/nonexistent/ca.pem' } }),
    ).rejects.toThrow('ca.pem')
  })
})
