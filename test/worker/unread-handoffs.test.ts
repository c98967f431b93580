/** Hand-offs whose response may never have been read: their blocks do not wait for the lease. */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { type Served, serveScripted } from './served.ts'

const LEG = { prompt: 'abc', max_tokens: 1, kv_transfer_params: { do_remote_decode: true } }
let served: Served
beforeAll(async () => {
  served = await serveScripted()
})
afterAll(() => served.worker.stop())
afterEach(() => served.checkIdle())
const next = () => served.engine.request(0)

describe('a response with a hand-off', () => {
  const whole = JSON.stringify(LEG)
  const leg = `POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: ${whole.length}\r\n\r\n${whole}`
  const lease = () => ({
    id: 'k',
    blockIds: [1],
    tokens: 3,
    export: () => ({ bytes: Buffer.from('kv'), tokens: 3 }),
    release: () => undefined,
  })
  const { leases } = { leases: () => served.worker.context.handoffs!.leases }

  /** A connection on which the response has arrived; it is read only if `read`. */
  async function answered(read: boolean): Promise<Socket> {
    const socket = connect(served.worker.port, '127.0.0.1')
    if (!read) socket.pause()
    socket.write(leg)
    const scripted = await next()
    const came = read ? once(socket, 'data') : undefined
    scripted.say('x').finish('length', { lease: lease() })
    await came
    return socket
  }
  const until = async (holds: () => boolean) => {
    while (!holds()) await new Promise(setImmediate)
  }

  it('that is dropped unread frees its blocks', async () => {
    const socket = await answered(false)
    await until(() => leases().size === 1)
    socket.resetAndDestroy()
    await until(() => leases().size === 0)
    expect(leases().size).toBe(0)
  })

  it('that is read keeps them, whether the connection is closed or reused', async () => {
    const socket = await answered(true)
    socket.end()
    await once(socket, 'close')
    served.engine.requests.length = 0
    const again = await answered(true)
    again.write('GET /health HTTP/1.1\r\nhost: a\r\n\r\n')
    await once(again, 'data')
    const connections = served.worker.context.connections()
    again.resetAndDestroy()
    await until(() => served.worker.context.connections() < connections)
    expect(leases().size).toBe(2)
    leases().close()
  })

  it('is not sent to a client that left unnoticed during a step, and the blocks are freed', async () => {
    const socket = connect(served.worker.port, '127.0.0.1')
    socket.write(leg)
    const scripted = await next()
    const connections = served.worker.context.connections()
    const released = new Promise<void>(resolve => {
      socket.destroy()
      // In the same turn of the event loop, so the worker cannot have noticed.
      scripted.say('x').finish('length', { lease: { ...lease(), release: resolve } })
    })
    await released
    expect([leases().size, connections > 0]).toEqual([0, true])
  })
})
