/** Clients that pipeline requests, and clients of HTTP/1.0. */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { afterEach, describe, expect, it, onTestFinished } from 'vitest'
import { ManualClock } from '../manual-clock.ts'
import { type Served, serveScripted } from './served.ts'

let served: Served
const clients: Socket[] = []
afterEach(async () => {
  for (const client of clients.splice(0)) client.destroy()
  await served.worker.stop()
  served.checkIdle()
})

const post = (body: object, version = '1.1') => {
  const text = JSON.stringify(body)
  return `POST /v1/completions HTTP/${version}\r\nhost: a\r\ncontent-length: ${Buffer.byteLength(text)}\r\n\r\n${text}`
}

function send(...requests: string[]) {
  const socket = connect(served.worker.port, '127.0.0.1')
  clients.push(socket)
  let text = ''
  socket.setEncoding('latin1').on('data', (part: string) => (text += part))
  socket.on('error', () => {}).write(requests.join(''))
  const until = async (holds: (text: string) => boolean) => {
    while (!holds(text)) await once(socket, 'data')
    return text
  }
  return { socket, until }
}

const STREAM = { prompt: 'a', stream: true, max_tokens: 100_000 }
const HAND_OFF = { prompt: 'abc', max_tokens: 1, kv_transfer_params: { do_remote_decode: true } }

describe('a pipelined request', () => {
  it('gets its response in order, even a hand-off that was ready earlier', async () => {
    served = await serveScripted()
    const { until } = send(post({ ...STREAM, max_tokens: 3 }), post(HAND_OFF))
    const [stream, leg] = [await served.engine.request(0), await served.engine.request(1)]
    const lease = {
      id: 'k',
      blockIds: [1],
      tokens: 3,
      export: () => ({ bytes: Buffer.from('kv'), tokens: 3 }),
      release: () => {},
    }
    leg.say('x').finish('length', { lease })
    stream.say('xyz').finish()
    const text = await until(seen => seen.includes('remote_request_id'))
    expect(text.indexOf('[DONE]')).toBeLessThan(text.indexOf('remote_request_id'))
    const { leases } = served.worker.context.handoffs!
    expect(leases.size).toBe(1)
    leases.close()
  })

  it('is aborted with all others when the client leaves', async () => {
    served = await serveScripted({ maxModelLen: 1_000_000 })
    const { socket } = send(post(STREAM), post(STREAM), post({ ...STREAM, stream: false }))
    const all = [
      await served.engine.request(0),
      await served.engine.request(1),
      await served.engine.request(2),
    ]
    socket.destroy()
    await served.engine.until(() => all.every(({ end }) => end !== undefined))
    expect(all.map(({ aborted }) => aborted)).toEqual(['gone', 'gone', 'gone'])
  })

  it('does not count as stalled while it waits, and is complete', async () => {
    served = await serveScripted({ maxModelLen: 1_000_000, clientStallMs: 400 })
    const clock = ManualClock.install()
    onTestFinished(() => clock.uninstall())
    const { until } = send(post(STREAM), post(STREAM))
    const [first, second] = [await served.engine.request(0), await served.engine.request(1)]
    for (let n = 0; n < 2_000; n++) second.token(97, 'word'.repeat(10))
    second.finish()
    clock.advance(1_000) // more than twice the stall timeout
    clock.uninstall()
    first.say('xyz').finish()
    const text = await until(seen => seen.split('[DONE]').length === 3)
    expect(text.match(/word/g)).toHaveLength(20_000)
    expect(second.aborted).toBeUndefined()
  })
})

it('a client of HTTP/1.0 gets its stream without chunks', async () => {
  served = await serveScripted()
  const { socket, until } = send(post({ ...STREAM, max_tokens: 3 }, '1.0'))
  ;(await served.engine.request(0)).say('xyz').finish()
  if (!socket.closed) await once(socket, 'close')
  const text = await until(seen => seen.includes('[DONE]'))
  expect(text).not.toMatch(/transfer-encoding/i)
  expect(text.split('\r\n\r\n')[1]).toMatch(/^data: \{.*\n\n.*data: \[DONE\]\n\n$/s)
})
