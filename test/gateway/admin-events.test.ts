import { connect } from 'node:net'
import { afterEach, describe, expect, it } from 'vitest'
import { call, errorOf, follow } from './admin-support.ts'
import { type Cluster, startCluster } from './cluster.ts'

let cluster: Cluster
afterEach(() => cluster.stop())

const ask = async (id: string) => {
  const response = await cluster.post(
    '/v1/completions',
    { prompt: 'a', max_tokens: 2 },
    { headers: { 'x-request-id': id } },
  )
  expect(response.status).toBe(200)
  await response.text()
}

describe('GET /eldr/events', () => {
  it('streams decisions, worker changes and routing changes', async () => {
    cluster = await startCluster()
    const [first, second] = [await follow(cluster), await follow(cluster)]
    await ask('one')
    const worker = new URL(cluster.decodes[0]!.url).host
    await call(cluster, 'POST', `/eldr/workers/${worker}/drain`)
    await call(cluster, 'PUT', '/eldr/policy', { policy: 'jsq' })
    for (const events of [first, second]) {
      expect((await events.find(({ event }) => event === 'decision')).data).toMatchObject({
        request: 'one',
        policy: 'union',
      })
      expect((await events.find(({ event }) => event === 'worker')).data).toEqual({
        change: 'drained',
        worker,
        leg: 'decode',
      })
      const { data } = await events.find(({ event, data }) => event === 'routing' && data.cause === 'policy')
      expect(data.routing).toMatchObject({ policy: 'jsq' })
      events.leave()
    }
  })

  it('drops events for a slow reader, reports how many, and does not slow down others', async () => {
    cluster = await startCluster({ config: { routing: { policy: 'jsq' } } })
    const { hostname, port } = new URL(cluster.url)
    const socket = connect({ host: hostname, port: Number(port) })
    await new Promise<void>(resolve => socket.once('connect', resolve))
    socket.write(`GET /eldr/events HTTP/1.1\r\nhost: ${hostname}:${port}\r\n\r\n`)
    // The greeting; nothing is read from now on.
    await new Promise(resolve => socket.once('readable', resolve))
    // Long ids, since the socket buffers hold up to about 10 MB.
    const { router, registry } = cluster.gateway.context
    const decide = (id: string) => {
      const place = router.toDecode(id, undefined, 1, new Set())!
      place.end('succeeded')
    }
    let sent = 0
    for (let round = 0; round < 300; round++) {
      for (let n = 0; n < 100; n++) decide(`${'x'.repeat(1000)}-${sent++}`)
      await new Promise(setImmediate)
    }
    expect(registry.views(0).every(({ inflight }) => inflight === 0)).toBe(true)
    let text = ''
    socket.setEncoding('utf8').on('data', (piece: string) => (text += piece))
    while (!text.includes('event: lost')) await new Promise(resolve => socket.once('data', resolve))
    decide('after')
    while (!text.includes('"request":"after"')) await new Promise(resolve => socket.once('data', resolve))
    const lost = Number(/event: lost\r?\ndata: \{"events":(\d+)\}/.exec(text)![1])
    const came = text.match(/event: decision/g)!.length
    expect(lost).toBeGreaterThan(0)
    expect(came + lost).toBe(sent + 1)
    socket.destroy()
  })

  it('limits its readers, and ends for all of them when the gateway stops', async () => {
    cluster = await startCluster({ prefill: 1, decode: 1, config: { server: { shutdownGraceMs: 60_000 } } })
    const readers = await Promise.all(Array.from({ length: 32 }, () => follow(cluster)))
    expect(errorOf(await call(cluster, 'GET', '/eldr/events'))).toBe('429 ELDR_OVERLOADED')
    readers.pop()!.leave()
    for (;;) {
      const again = await fetch(`${cluster.url}/eldr/events`)
      if (again.status === 429) continue // the one that left is noticed in its time
      expect(again.status).toBe(200)
      void again.text()
      break
    }
    const stopped = cluster.gateway.stop()
    await Promise.all(readers.map(reader => reader.ended()))
    await stopped
  })
})
