/** Changes by operators on one replica reach all replicas in one order, also those that were disconnected. */
import { copyFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { smallArtifact } from '../../gateway/admin-support.ts'
import { type Replica, type Stage, startStage, until } from './gateways.ts'
import { type Store, startStore } from './store.ts'

let folder: string
let files: { readonly one: string; readonly two: string }
let store: Store
let stage: Stage
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'eldr-replicas-'))
  files = { one: (await smallArtifact(folder, 2)).path, two: (await smallArtifact(folder, 4)).path }
  store = await startStore()
})
afterAll(async () => {
  await store.close()
  rmSync(folder, { recursive: true, force: true })
})
beforeEach(async () => {
  await store.ask('FLUSHALL')
  stage = await startStage()
})
afterEach(() => stage.close())

const three = () =>
  Promise.all([0, 1, 2].map(() => stage.replica(store.url, { routing: { policy: 'jsq', refit: 'off' } })))
const routing = ({ gateway }: Replica) => gateway.control.view()
const settled = (all: readonly Replica[]) =>
  until('all to have one version', async () => {
    const ready = await Promise.all(all.map(({ get }) => get('/ready')))
    return (
      new Set(ready.map(({ replicas }) => replicas.version)).size === 1 &&
      ready.every(({ replicas }) => replicas.waiting === 0 && replicas.version > 0)
    )
  })

describe('a change by the admin API', () => {
  it('of policy, band and prefill policy reaches all replicas, and one that starts later', async () => {
    const all = await three()
    expect(
      (
        await all[0]!.change('PUT', '/eldr/policy', {
          policy: 'power_of_two',
          tau: 0.25,
          prefillPolicy: 'least_loaded',
        })
      ).status,
    ).toBe(200)
    const wanted = { policy: 'power_of_two', tau: 0.25, prefillPolicy: 'least_loaded' }
    await until('it to be everywhere', () =>
      all.every(replica => JSON.stringify(routing(replica)).includes(JSON.stringify(wanted).slice(1, -1))),
    )
    const late = await stage.replica(store.url, { routing: { policy: 'jsq' } })
    await until(
      'the late one to be like them',
      () => routing(late).policy === 'power_of_two' && routing(late).tau === 0.25,
    )
  })

  it('made on several replicas at once ends in the same state everywhere', async () => {
    const all = await three()
    const policies = ['jsq', 'random', 'round_robin', 'power_of_two', 'union']
    for (let round = 0; round < 15; round++) {
      await Promise.all(
        all.map((replica, at) =>
          replica.change('PUT', '/eldr/policy', {
            policy: policies[(round + at) % 5],
            tau: (round * 3 + at) / 100,
          }),
        ),
      )
      await settled(all)
      const stored = [
        await store.ask('HGET', 'eldr:changes', 'policy'),
        Number(await store.ask('HGET', 'eldr:changes', 'tau')),
      ]
      for (const replica of all) expect([routing(replica).policy, routing(replica).tau]).toEqual(stored)
    }
  })

  it('that drains a worker drains it everywhere, also one added later, and undrains it', async () => {
    const all = await three()
    const states = () =>
      all.map(
        ({ gateway }) =>
          gateway.context.registry.views(performance.now()).find(({ spec }) => spec.id === 'd0')!.state,
      )
    await all[1]!.change('POST', '/eldr/workers/d0/drain')
    await until('it to be drained everywhere', () => states().every(state => state === 'draining'))
    // A worker that is removed and added again is still drained.
    expect((await all[0]!.change('DELETE', '/eldr/workers/d0')).status).toBe(200)
    expect(
      (
        await all[0]!.change('POST', '/eldr/workers', {
          id: 'd0',
          role: 'decode',
          url: stage.decodes[0]!.url,
        })
      ).status,
    ).toBe(201)
    await until('it to be drained again', () => states().every(state => state === 'draining'))
    await all[2]!.change('POST', '/eldr/workers/d0/undrain')
    await until('it to be back', () => states().every(state => state === 'ready'))
  })

  it('while the store hangs applies here immediately, and elsewhere when the store is back', async () => {
    const all = await three()
    store.hang()
    // The store hangs, so a response proves that the change does not wait for it.
    expect((await all[0]!.change('PUT', '/eldr/policy', { policy: 'random' })).status).toBe(200)
    expect(routing(all[0]!).policy).toBe('random')
    await until('it to be noticed', async () => (await all[0]!.get('/ready')).replicas.store === 'down')
    expect((await all[0]!.get('/ready')).replicas.waiting).toBe(1)
    store.goOn()
    await until('it to be everywhere', () => all.every(replica => routing(replica).policy === 'random'))
  })
})

describe('an artifact', () => {
  it('uploaded to one replica reaches the others through the store, and so do its refits', async () => {
    const all = await three()
    const sent = await all[0]!.change('POST', '/eldr/artifact', readFileSync(files.one))
    expect(sent.status).toBe(200)
    const { artifact } = (await sent.json()) as { artifact: { sha256: string } }
    await until('it to be everywhere', () =>
      all.every(replica => routing(replica).artifact?.sha256 === artifact.sha256),
    )
    await all[1]!.change('PUT', '/eldr/policy', { policy: 'eldr' })
    await until('eldr everywhere', () => all.every(replica => routing(replica).policy === 'eldr'))
    expect((await all[2]!.change('POST', '/eldr/refit', { workers: 3 })).status).toBe(200)
    await until('the refit everywhere', () => all.every(replica => routing(replica).artifact?.clusters === 3))
    const late = await stage.replica(store.url, { routing: { policy: 'jsq', refit: 'off' } })
    await until(
      'the late one to be like them',
      () => routing(late).policy === 'eldr' && routing(late).artifact?.clusters === 3,
    )
  })

  it('with a path is read from the same file on each replica', async () => {
    const all = await three()
    await all[0]!.change('POST', '/eldr/artifact', { path: files.two })
    await until('it to be everywhere', () =>
      all.every(replica => routing(replica).artifact?.file === files.two),
    )
    expect(all.every(({ lines }) => lines.every(({ level }) => Number(level) < 50))).toBe(true)
  })

  it('that is not available is logged as an error, and loaded once it is available', async () => {
    const small = { replicas: { artifactBytes: 0 }, routing: { policy: 'jsq', refit: 'off' } }
    const [a, b] = await Promise.all([stage.replica(store.url, small), stage.replica(store.url, small)])
    const path = join(folder, 'changes.safetensors')
    copyFileSync(files.one, path)
    await a.change('POST', '/eldr/artifact', { path })
    await until('the first', () => routing(b).artifact?.file === path)
    const first = routing(b).artifact!.sha256
    // Uploaded and too large for the store, so the other replica cannot get it.
    await a.change('POST', '/eldr/artifact', readFileSync(files.two))
    await until('the problem to be reported', async () => (await b.metric('eldr_replica_behind')) === 1)
    expect((await b.get('/ready')).replicas.behind).toEqual(['artifact'])
    expect(
      b.lines.some(
        ({ level, problems }) => level === 50 && String(problems).includes('its bytes are not in the store'),
      ),
    ).toBe(true)
    expect(routing(b).artifact!.sha256).toBe(first)
    expect((await b.change('GET', '/ready')).status).toBe(200)
    await a.change('POST', '/eldr/artifact', { path: files.two })
    await until(
      'both to be alike',
      () =>
        routing(b).artifact?.sha256 === routing(a).artifact?.sha256 && routing(b).artifact?.sha256 !== first,
    )
    await until('nothing to be behind', async () => (await b.metric('eldr_replica_behind')) === 0)
  })
})
