/** Shared changes written to the store by another client, and how gateways treat them. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type Replica, type Stage, startStage, until } from './gateways.ts'
import { type Store, startStore } from './store.ts'

let store: Store
let stage: Stage
beforeAll(async () => {
  store = await startStore()
})
afterAll(() => store.close())
beforeEach(async () => {
  await store.ask('FLUSHALL')
  stage = await startStage()
})
afterEach(() => stage.close())

const KEY = 'eldr:changes'
const pair = () =>
  Promise.all([
    stage.replica(store.url, { routing: { policy: 'jsq' } }),
    stage.replica(store.url, { routing: { policy: 'jsq' } }),
  ])
const up = (all: readonly Replica[]) =>
  until('the store', async () =>
    (await Promise.all(all.map(({ get }) => get('/ready')))).every(({ replicas }) => replicas.store === 'up'),
  )
const policies = (all: readonly Replica[]) => all.map(({ gateway: { control } }) => control.policy)
const agree = (all: readonly Replica[], policy: string) =>
  until(`all to be ${policy}`, () => policies(all).every(name => name === policy))
/** The store's own clock. */
const now = async () => Number(((await store.ask('TIME')) as string[])[0]) * 1000

describe('shared changes written by another client', () => {
  it.each(['9007199254740991', '4503599627370496', '1e300', '-5'])(
    'with version %s do not prevent replicas from agreeing after the next change',
    async version => {
      const all = await pair()
      await up(all)
      await store.ask('HSET', KEY, 'version', version, 'policy', 'random')
      await all[0].change('PUT', '/eldr/policy', { policy: 'round_robin' })
      await agree(all, 'round_robin')
      await all[1].change('PUT', '/eldr/policy', { policy: 'power_of_two' })
      await agree(all, 'power_of_two')
      for (const { get } of all)
        expect((await get('/ready')).replicas).toMatchObject({ waiting: 0, behind: [] })
      expect(await store.ask('HGET', KEY, 'policy')).toBe('power_of_two')
    },
  )

  it.each(['/dev/zero', '/proc/self/mem', '/'])(
    'with an artifact at %s are applied except for the artifact',
    async path => {
      const all = await pair()
      await up(all)
      const artifact = JSON.stringify({ sha256: '0'.repeat(64), path })
      await store.ask('HSET', KEY, 'version', String(await now()), 'policy', 'random', 'artifact', artifact)
      await agree(all, 'random')
      await until('the problem to be reported', async () =>
        (await all[0].get('/ready')).replicas.behind.includes('artifact'),
      )
      await all[0].change('PUT', '/eldr/policy', { tau: 0.25 })
      await until('the next change', () => all[1].gateway.control.view().tau === 0.25)
      expect((await all[1].get('/ready')).replicas).toMatchObject({ waiting: 0, behind: ['artifact'] })
    },
  )

  it('with thousands of fields are restored completely to a store that has lost them', async () => {
    const all = await pair()
    await up(all)
    const fields = Array.from({ length: 5_000 }, (_, n) => [`drain:w${n}`, '1']).flat()
    await store.ask('HSET', KEY, 'version', String(await now()), 'policy', 'random', ...fields)
    await agree(all, 'random')
    await store.ask('DEL', KEY)
    await until('it to be back', async () => Number(await store.ask('HLEN', KEY)) > 0)
    expect(await store.ask('HLEN', KEY)).toBe(5_002)
  })

  it('keep no field of a worker that is no longer drained', async () => {
    const all = await pair()
    await up(all)
    const states = () =>
      all.map(
        ({ gateway }) =>
          gateway.context.registry.views(performance.now()).find(({ spec }) => spec.id === 'd0')!.state,
      )
    await all[0].change('POST', '/eldr/workers/d0/drain')
    await until('both to drain it', () => states().every(state => state === 'draining'))
    await all[1].change('POST', '/eldr/workers/d0/undrain')
    await until('both to use it', () => states().every(state => state === 'ready'))
    expect(await store.ask('HGET', KEY, 'drain:d0')).toBe(null)
  })
})
