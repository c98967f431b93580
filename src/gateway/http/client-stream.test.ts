import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import * as fc from 'fast-check'
import { afterEach, describe, expect, it } from 'vitest'
import { ClientStream, joined } from './client-stream.ts'
import { Exchange } from './exchange.ts'

const server = createServer()
const clients: Socket[] = []
afterEach(() => {
  for (const client of clients.splice(0)) client.destroy()
  server.removeAllListeners('request').close().closeAllConnections()
})

/** A client that has sent a request but reads nothing, and the stream to it. */
async function start(request = 'POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n') {
  const received = once(server, 'request') as Promise<[IncomingMessage, ServerResponse]>
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const client = connect((server.address() as AddressInfo).port, '127.0.0.1')
  clients.push(client)
  client.on('error', () => {}).pause()
  client.write(request)
  const exchange = new Exchange('id', ...(await received), { ms: 60_000, reason: 'deadline' })
  const stream = new ClientStream(exchange)
  stream.begin({ 'content-type': 'text/event-stream' })
  return { client, stream }
}

async function textOf(client: Socket): Promise<string> {
  let text = ''
  client.setEncoding('latin1').on('data', (part: string) => (text += part))
  client.resume()
  await once(client, 'end')
  return text
}

const LAST = 'connection: close\r\n'
const post = (version: string, more = '') =>
  `POST / HTTP/${version}\r\nhost: a\r\n${more}content-length: 0\r\n\r\n`

describe('ClientStream', () => {
  it.each(['1.1', '1.0'])(
    'resumes after backpressure once the client has read everything, without new data (HTTP/%s)',
    async version => {
      const { client, stream } = await start(post(version))
      const chunk = Buffer.alloc(65_536, 'a')
      do stream.write(chunk)
      while (stream.flush())
      const taken = new Promise<void>(resolve => stream.drained(resolve))
      client.resume()
      await taken
      expect(stream.flush()).toBe(true)
      stream.end()
    },
  )

  it('sends the same bytes with the worker’s frames, its own frames and unframed', async () => {
    const texts: string[] = []
    for (const version of ['1.1', '1.0']) {
      const { client, stream } = await start(post(version, LAST))
      stream.write(Buffer.from('one '), Buffer.from('4\r\none \r\n'))
      stream.flush()
      stream.write(Buffer.from('two '))
      stream.end('three')
      texts.push((await textOf(client)).split('\r\n\r\n').slice(1).join('\r\n\r\n'))
      server.close()
    }
    expect(texts).toEqual(['4\r\none \r\n4\r\ntwo \r\n5\r\nthree\r\n0\r\n\r\n', 'one two three'])
  })

  it('sends no body for HEAD', async () => {
    const { client, stream } = await start(`HEAD / HTTP/1.1\r\nhost: a\r\n${LAST}\r\n`)
    stream.write(Buffer.from('one'), Buffer.from('3\r\none\r\n'))
    stream.end()
    expect((await textOf(client)).split('\r\n\r\n')[1]).toBe('')
  })
})

describe('joined', () => {
  it('equals Buffer.concat for any layout of the frames in memory', () => {
    const cuts = fc.array(fc.tuple(fc.nat(60), fc.nat(60), fc.boolean()), { minLength: 1, maxLength: 8 })
    fc.assert(
      fc.property(cuts, list => {
        const memory = Buffer.from(Array.from({ length: 64 }, (_, at) => at))
        let at = 0
        const frames = list.map(([from, length, follows]) => {
          const start = follows ? at : from
          at = Math.min(64, start + length)
          return memory.subarray(start, at)
        })
        const whole = Buffer.concat(frames)
        expect(joined(frames, whole.length)).toEqual(whole)
      }),
    )
  })
})
