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

  it('fails clearly when nobody listens', async () => {
    const place = await peer(() => undefined)
    await closers.pop()!()
    expect(await failureOf(read(place))).toMatchObject({
      kind: 'unreachable',
      message: 'the prefill worker cannot be reached (ECONNREFUSED)',
    })
  })

  it.each<[string, (socket: Socket) => void, KvFailure['kind'], string]>([
    ['that breaks off', socket => socket.destroy(), 'broken', 'broke off'],
    [
      'that speaks something else',
      socket => socket.write('HTTP/1.1 400 Bad Request\r\n\r\n'),
      'broken',
      'no frame',
    ],
    [
      'that announces too much',
      socket => socket.write(textFrame('coming', { tokens: 5, bytes: 2 ** 40 })),
      'broken',
      '1099511627776 bytes',
    ],
    [
      'that announces nonsense',
      socket => socket.write(textFrame('coming', { tokens: 5, bytes: 'x' })),
      'broken',
      'x bytes are announced',
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
      'that sends data alone',
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
      'that changes a byte on the way',
      socket => {
        const frame = frameOf('data', Buffer.from('ab'))
        frame[frame.length - 1]! ^= 1
        socket.write(Buffer.concat([textFrame('coming', { tokens: 5, bytes: 2 }), frame]))
      },
      'broken',
      'checksum',
    ],
  ])('is not fooled by a peer %s', async (_, talk, kind, words) => {
    const failure = await failureOf(read(await peer(talk)))
    expect(failure).toMatchObject({ kind, message: expect.stringContaining(words) as string })
  })

  it('gives up on a peer that sends nothing, within its limits', async () => {
    const place = await peer(() => undefined)
    const failure = await failureOf(
      readKv(place, { tokens: 1, promptHash: '' }, { ...LIMITS, idleMs: 30 }, forever()),
    )
    expect(failure).toMatchObject({ kind: 'timeout', message: 'the prefill worker has stopped sending' })
  })

  it('stops when it is told to, before and amid', async () => {
    const stop = new AbortController()
    const place = await peer(() => stop.abort())
    expect(await failureOf(read(place, 5, stop.signal))).toMatchObject({ kind: 'stopped' })
    expect(await failureOf(read(place, 5, stop.signal))).toMatchObject({ kind: 'stopped' })
  })
})
