import { once } from 'node:events'
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import { describe, expect, it } from 'vitest'
import { closers, failureOf, forever, LIMITS, read } from '../../../test/worker/kv-served.ts'
import { frameOf, textFrame } from './frames.ts'
import { type KvFailure, type KvPlace, readKv } from './kv-client.ts'

describe('a reader of KV blocks', () => {
  async function peer(talk: (socket: Socket) => void): Promise<KvPlace> {
    const server: Server = createServer(socket => {
      socket.on('error', () => undefined)
      talk(socket)
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    closers.push(() => void server.close())
    return { host: '127.0.0.1', port: (server.address() as AddressInfo).port, engineId: 'e', requestId: 'r' }
  }

  it('fails with a clear message if the prefill worker is not listening', async () => {
    const place = await peer(() => undefined)
    await closers.pop()!()
    expect(await failureOf(read(place))).toMatchObject({
      kind: 'unreachable',
      message: 'the prefill worker cannot be reached (ECONNREFUSED)',
    })
  })

  it.each<[string, (socket: Socket) => void, KvFailure['kind'], string]>([
    ['that closes the connection', socket => socket.destroy(), 'broken', 'closed the connection'],
    [
      'that uses another protocol',
      socket => socket.write('HTTP/1.1 400 Bad Request\r\n\r\n'),
      'broken',
      'not a frame',
    ],
    [
      'that announces too much',
      socket => socket.write(textFrame('coming', { tokens: 5, bytes: 2 ** 40 })),
      'broken',
      'announced size 1099511627776',
    ],
    [
      'that announces an invalid size',
      socket => socket.write(textFrame('coming', { tokens: 5, bytes: 'x' })),
      'broken',
      'announced size x',
    ],
    [
      'that sends more than it announced',
      socket =>
        socket.write(
          Buffer.concat([textFrame('coming', { tokens: 5, bytes: 1 }), frameOf('data', Buffer.from('ab'))]),
        ),
      'broken',
      'more data',
    ],
    [
      'that sends data without announcing it',
      socket => socket.write(frameOf('data', Buffer.from('ab'))),
      'broken',
      'more data',
    ],
    [
      'that announces twice',
      socket =>
        socket.write(
          Buffer.concat([
            textFrame('coming', { tokens: 5, bytes: 9 }),
            textFrame('coming', { tokens: 5, bytes: 9 }),
          ]),
        ),
      'broken',
      'twice',
    ],
    [
      'that sends a corrupted byte',
      socket => {
        const frame = frameOf('data', Buffer.from('ab'))
        frame[frame.length - 1]! ^= 1
        socket.write(Buffer.concat([textFrame('coming', { tokens: 5, bytes: 2 }), frame]))
      },
      'broken',
      'checksum',
    ],
  ])('rejects a peer %s', async (_, talk, kind, words) => {
    const failure = await failureOf(read(await peer(talk)))
    expect(failure).toMatchObject({ kind, message: expect.stringContaining(words) as string })
  })

  it('times out on a peer that sends nothing', async () => {
    const place = await peer(() => undefined)
    const failure = await failureOf(
      readKv(place, { from: 0, tokens: 1, promptHash: '' }, { ...LIMITS, idleMs: 30 }, forever()),
    )
    expect(failure).toMatchObject({ kind: 'timeout', message: 'the prefill worker stopped sending' })
  })

  it('stops when aborted, before and during the transfer', async () => {
    const stop = new AbortController()
    const place = await peer(() => stop.abort())
    expect(await failureOf(read(place, 5, stop.signal))).toMatchObject({ kind: 'stopped' })
    expect(await failureOf(read(place, 5, stop.signal))).toMatchObject({ kind: 'stopped' })
  })
})
