/**
 * A store that hangs, refuses, is full, loses data or is shared: requests continue, and replicas join again.
 */
import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { heldStream, type Replica, type Stage, startStage, until } from './gateways.ts'
import { freePort } from '../../free-port.ts'
import { type Store, startStore } from './store.ts'

let store: Store | undefined
let stage: Stage
beforeEach(async () => {
  stage = await startStage()
})
afterEach(async () => {
  store?.goOn()
  await stage.close()
  await store?.close()
  store = undefined
})

const JSQ = { routing: { policy: 'jsq' } }
async function pair(url: string): Promise<[Replica, Replica]> {
  const both = await Promise.all([stage.replica(url, JSQ), stage.replica(url, JSQ)])
  await together(both)
  return both
}
const together = (all: readonly Replica[]) =>
  until('all to know of each other', async () =>
    (await Promise.all(all.map(({ metric }) => metric('eldr_replicas')))).every(
      count => count === all.length,
    ),
  )
const alone = (replica: Replica) =>
  until('it to be alone', async () => (await replica.metric('eldr_replicas')) === 1)

/** Requests are served and the gateway is ready while the store does not respond, so neither waits for it. */
async function servesAlone(replica: Replica): Promise<void> {
  for (let n = 0; n < 20; n++) {
    const answer = await replica.post({ prompt: 'a', max_tokens: 3 })
    expect(answer.status).toBe(200)
    await answer.text()
  }
  const ready = await replica.change('GET', '/ready')
  expect(ready.status).toBe(200)
}
/** Each sees the other's load while it runs, and none afterwards. */
async function shares([a, b]: readonly [Replica, Replica]): Promise<void> {
  const { release, text } = await heldStream(a, stage)
  await until('the request to be seen', () => b.inflight().elsewhere === 1)
  release()
  await text()
  await until('nothing anywhere', () =>
    [a, b].every(({ inflight }) => inflight().own + inflight().elsewhere === 0),
  )
}

describe('a store', () => {
  it('that hangs delays no request; views expire with their leases, and return with the store', async () => {
    store = await startStore()
    const [a, b] = await pair(store.url)
    const { release, text } = await heldStream(a, stage)
    await until('the request to be seen', () => b.inflight().elsewhere === 1)
    store.hang()
    // The request still runs: only the end of the lease can remove it from the view.
    await until('the view to expire', () => b.inflight().elsewhere === 0)
    expect(a.inflight().own).toBe(1)
    await Promise.all([servesAlone(a), servesAlone(b)])
    await until('it to be noticed', async () => (await b.metric('eldr_replica_store_up')) === 0)
    expect((await b.get('/ready')).replicas).toMatchObject({ store: 'down', reason: 'silent', replicas: 1 })
    store.goOn()
    await together([a, b])
    await until('the request to be seen again', () => b.inflight().elsewhere === 1)
    release()
    await text()
    await shares([a, b])
  })

  it('that hangs does not keep a gateway from stopping', async () => {
    store = await startStore()
    const [a] = await pair(store.url)
    store.hang()
    await expect(a.gateway.stop()).resolves.toBeUndefined() // while the store still hangs
  })

  it('that is down at first is used once it is up', async () => {
    store = await startStore()
    await store.kill()
    const both = await Promise.all([stage.replica(store.url, JSQ), stage.replica(store.url, JSQ)])
    await servesAlone(both[0])
    expect((await both[0].get('/ready')).replicas).toMatchObject({ store: 'down', reason: 'unreachable' })
    await store.start()
    await together(both)
    await shares(both)
  })

  it('that restarts empty gets the operators’ changes again', async () => {
    store = await startStore()
    const [a, b] = await pair(store.url)
    await a.change('PUT', '/eldr/policy', { policy: 'power_of_two' })
    await until('it to be shared', () => b.gateway.control.policy === 'power_of_two')
    await store.kill()
    await Promise.all([alone(a), alone(b)])
    await servesAlone(b)
    await b.change('PUT', '/eldr/policy', { tau: 0.3 })
    await store.start()
    await together([a, b])
    const c = await stage.replica(store.url, JSQ)
    await until('the third to be like them', () =>
      [a, b, c].every(
        ({ gateway: { control } }) => control.policy === 'power_of_two' && control.view().tau === 0.3,
      ),
    )
    await store.ask('FLUSHALL') // without a connection that ends
    await until(
      'it to be back',
      async () => (await store!.ask('HGET', 'eldr:changes', 'policy')) === 'power_of_two',
    )
    expect((await c.get('/ready')).replicas.version).toBeGreaterThan(0)
    await shares([a, b])
  })

  it('that is full still passes loads on, and takes changes once it has room', async () => {
    store = await startStore({ flags: ['--maxmemory', '1', '--maxmemory-policy', 'noeviction'] })
    const [a, b] = await pair(store.url)
    await shares([a, b])
    await a.change('PUT', '/eldr/policy', { tau: 0.4 })
    await until(
      'the refusal to be counted',
      async () => ((await a.metric('eldr_replica_ignored_total', { reason: 'refused' })) ?? 0) > 0,
    )
    expect(await a.metric('eldr_replica_changes_waiting')).toBe(1)
    expect(a.lines.filter(({ why }) => String(why).includes('OOM')).length).toBe(1)
    expect(b.gateway.control.view().tau).toBe(0.1)
    await store.ask('CONFIG', 'SET', 'maxmemory', '0')
    await until('it to be shared', () => b.gateway.control.view().tau === 0.4)
    expect(await a.metric('eldr_replica_changes_waiting')).toBe(0)
  })

  it('with another password is reported, without the password', async () => {
    store = await startStore({ password: 'right' })
    const wrong = `redis://:sk-wrong@127.0.0.1:${store.port}`
    const a = await stage.replica(wrong, JSQ)
    await until('the reason', () => a.lines.some(({ reason }) => String(reason).includes('WRONGPASS')))
    await servesAlone(a)
    expect((await a.get('/ready')).replicas).toMatchObject({ store: 'down', reason: 'refused' })
    expect(JSON.stringify(a.lines) + JSON.stringify(await a.get('/eldr/config'))).not.toContain('sk-wrong')
    expect((await a.get('/eldr/config')).settings.replicas.url).toBe(
      `redis://:********@127.0.0.1:${store.port}`,
    )
    await shares(await pair(store.url))
  })

  it('that has foreign data under our keys is used for the rest', async () => {
    store = await startStore()
    await store.ask('SET', 'eldr:changes', 'not a hash')
    const [a, b] = await pair(store.url)
    await until(
      'the refusal to be counted',
      async () => ((await a.metric('eldr_replica_ignored_total', { reason: 'refused' })) ?? 0) > 0,
    )
    for (const bytes of [
      Buffer.from('hello'),
      Buffer.from([0xe1, 1, 0, 200]),
      Buffer.alloc(0),
      Buffer.alloc(70_000, 7),
    ])
      await store.ask('PUBLISH', 'eldr:replicas', bytes)
    await until(
      'all to be counted',
      async () =>
        (await b.metric('eldr_replica_ignored_total', { reason: 'foreign' })) === 3 &&
        (await b.metric('eldr_replica_ignored_total', { reason: 'malformed' })) === 1,
    )
    expect(b.lines.filter(({ reason }) => reason === 'foreign').length).toBe(1)
    await shares([a, b])
    await store.ask('DEL', 'eldr:changes')
    await store.ask(
      'HSET',
      'eldr:changes',
      'version',
      'x',
      'policy',
      'no_such',
      'tau',
      'NaN',
      'artifact',
      '{',
      'drain:',
      '1',
    )
    await a.change('PUT', '/eldr/policy', { policy: 'random' })
    await until('the change to be shared', () => b.gateway.control.policy === 'random')
    expect(b.gateway.control.view().tau).toBe(0.1)
    expect((await b.get('/ready')).replicas.behind).toEqual(['artifact'])
    await shares([a, b])
  })

  it('that does not speak the protocol, or closes each connection, is tried again', async () => {
    const answers = [
      'HTTP/1.1 400 Bad Request\r\n\r\n',
      '$-7\r\n*99999999999\r\n',
      '\0'.repeat(500),
      '+OK\r\n'.repeat(50),
      '',
    ]
    let asked = 0
    const sockets = new Set<Socket>()
    const server = createServer(socket => {
      sockets.add(socket)
      socket.on('error', () => {})
      const answer = answers[asked++ % answers.length]!
      if (answer === '') socket.destroy()
      else socket.on('data', () => socket.write(answer))
    })
    const port = await freePort()
    server.listen(port, '127.0.0.1')
    await once(server, 'listening')
    const a = await stage.replica(`redis://127.0.0.1:${port}`, JSQ)
    await until('every answer to have been tried', () => asked > 3 * answers.length, 20_000)
    await servesAlone(a)
    expect(await a.metric('eldr_replica_store_up')).toBe(0)
    server.close()
    for (const socket of sockets) socket.destroy()
  })

  it('that closes the subscription is reconnected', async () => {
    store = await startStore()
    const both = await pair(store.url)
    await store.ask('CLIENT', 'KILL', 'TYPE', 'pubsub')
    await until('it to be noticed', () =>
      both.every(
        ({ lines }) => lines.filter(({ msg }) => msg === 'replicas: connected to the store').length >= 2,
      ),
    )
    await together(both)
    await shares(both)
    for (const { metric } of both) expect(await metric('eldr_replica_store_up')).toBe(1)
  })
})
