import { once } from 'node:events'
import { connect } from 'node:net'
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { failureOf, forever, LIMITS, read, serve } from '../../../test/worker/kv-served.ts'
import { DATA_BYTES, frameOf, FrameReader, objectIn, textFrame } from './frames.ts'
import { readKv, releaseKv, renewKv } from './kv-client.ts'
import { KvServer } from './kv-server.ts'
import { LeaseBook } from './leases.ts'

describe('the KV side channel', () => {
  it.each([0, 1, DATA_BYTES - 1, DATA_BYTES, 3 * DATA_BYTES + 17])(
    'moves %i bytes, and frees them when they have come',
    async size => {
      const { keep, place, ended, leases } = await serve()
      const bytes = Uint8Array.from({ length: size }, (_, i) => (i * 31) & 255)
      keep('a', bytes)
      const payload = await read(place('a'))
      expect([payload.tokens, Buffer.compare(payload.bytes, bytes)]).toEqual([5, 0])
      expect(await ended(1)).toEqual([['a', 'read']])
      expect(leases.size).toBe(0)
    },
  )

  it('sends no blocks twice', async () => {
    const { keep, place, ended } = await serve()
    keep('a', Buffer.from('kv'))
    await read(place('a'))
    await ended(1)
    expect(await failureOf(read(place('a')))).toMatchObject({
      kind: 'refused',
      message: expect.stringContaining('no blocks are leased for a') as string,
    })
  })

  it.each([
    ['an unknown request', {}, 'no blocks are leased for b', 'b'],
    ['another engine: this one was restarted', { engineId: 'engine-0' }, 'this is engine engine-1', 'a'],
  ])('refuses %s', async (_, more, words, id) => {
    const { keep, place, leases } = await serve()
    keep('a', Buffer.from('kv'))
    const failure = await failureOf(read({ ...place(id), ...more }))
    expect(failure).toMatchObject({ kind: 'refused', message: expect.stringContaining(words) as string })
    expect(leases.size).toBe(1)
  })

  it('refuses a reader with another prompt or another number of tokens', async () => {
    const { keep, place, leases } = await serve()
    keep('a', Buffer.from('kv'))
    const other = readKv(place('a'), { from: 0, tokens: 5, promptHash: 'other' }, LIMITS, forever())
    expect(await failureOf(other)).toMatchObject({
      kind: 'refused',
      message: expect.stringContaining('another prompt') as string,
    })
    const beyond = readKv(place('a'), { from: 6, tokens: 5, promptHash: 'hash' }, LIMITS, forever())
    expect(await failureOf(beyond)).toMatchObject({
      message: expect.stringContaining('cannot read from token 6 of 5') as string,
    })
    expect(await failureOf(read(place('a'), 6))).toMatchObject({
      message: 'the prefill worker holds 5 tokens, the hand-off says 6',
    })
    expect(leases.size).toBe(1)
  })

  it('reports expired blocks as gone', async () => {
    const { keep, place, ended } = await serve(5)
    keep('a', Buffer.from('kv'))
    expect(await ended(1)).toEqual([['a', 'expired']])
    expect(await failureOf(read(place('a')))).toMatchObject({
      kind: 'refused',
      message: expect.stringContaining('lease has expired') as string,
    })
  })

  it('renews a lease and reports its duration', async () => {
    const { keep, place } = await serve(12_345)
    keep('a', Buffer.from('kv'))
    expect(await renewKv(place('a'), LIMITS, forever())).toBe(12_345)
    expect(await failureOf(renewKv(place('b'), LIMITS, forever()))).toMatchObject({ kind: 'refused' })
  })

  it('accepts repeated releases of unread blocks', async () => {
    const { keep, place, ends } = await serve()
    keep('a', Buffer.from('kv'))
    await releaseKv(place('a'), LIMITS, forever())
    await releaseKv(place('a'), LIMITS, forever())
    expect(ends).toEqual([['a', 'released']])
  })

  it('keeps the blocks of a reader that disconnected, for a retry', async () => {
    const { keep, place, leases, server } = await serve()
    keep('a', Buffer.alloc(8 * DATA_BYTES, 1))
    const socket = connect(server.port, '127.0.0.1')
    socket.write(textFrame('read', { engine_id: 'engine-1', request_id: 'a', prompt_hash: 'hash' }))
    await once(socket, 'data')
    socket.destroy()
    expect(leases.size).toBe(1)
    expect((await read(place('a'))).bytes.length).toBe(8 * DATA_BYTES)
  })

  it('survives arbitrary bytes and keeps serving', async () => {
    const { keep, place, server, bad } = await serve()
    keep('a', Buffer.from('kv'))
    const known = ['read', 'acknowledge', 'renew', 'release', 'coming', 'data', 'done', 'failure'] as const
    const piece = fc.oneof(
      fc.uint8Array({ maxLength: 200 }).map(bytes => Buffer.from(bytes)),
      fc
        .tuple(fc.constantFrom(...known), fc.uint8Array({ maxLength: 60 }))
        .map(([type, payload]) => frameOf(type, payload)),
      fc
        .tuple(
          fc.constantFrom(...known),
          fc.dictionary(fc.constantFrom('engine_id', 'request_id'), fc.jsonValue()),
        )
        .map(([type, value]) => textFrame(type, value)),
    )
    await fc.assert(
      fc.asyncProperty(fc.array(piece, { minLength: 1, maxLength: 4 }), async pieces => {
        const socket = connect(server.port, '127.0.0.1')
        socket.on('error', () => undefined).resume()
        for (const bytes of pieces) socket.write(bytes)
        socket.end()
        await once(socket, 'close')
      }),
      { numRuns: 60 },
    )
    expect(bad.length).toBeGreaterThan(0)
    expect((await read(place('a'))).bytes.length).toBe(2)
  })

  it('responds to a bad frame with the reason and closes the connection', async () => {
    const { server } = await serve()
    const socket = connect(server.port, '127.0.0.1')
    const reader = new FrameReader(1_000)
    socket.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n')
    const [chunk] = (await once(socket, 'data')) as [Buffer]
    const [frame] = [...reader.push(chunk)]
    expect(objectIn(frame!)).toEqual({ code: 'bad_frame', message: 'not a frame' })
    if (!socket.destroyed) await once(socket, 'close')
  })

  it.each([
    ['sends requests and does not read', textFrame('renew', { engine_id: 'engine-1', request_id: 'a' })],
    ['sends junk and does not read', Buffer.alloc(1_000, 'x')],
  ])('stops reading from a peer that %s', async (_, piece) => {
    const { keep, server, bad } = await serve(60_000, { idleMs: 200 })
    keep('a', Buffer.alloc(64 << 20))
    const socket = connect(server.port, '127.0.0.1')
    socket.on('error', () => undefined).pause()
    socket.write(textFrame('read', { engine_id: 'engine-1', request_id: 'a', prompt_hash: 'hash' }))
    const much = Buffer.concat(Array.from({ length: (64 << 20) / piece.length }, () => piece))
    // No progress any more: the idle timeout closes it.
    const taken = await new Promise(resolve =>
      socket.write(much, error => resolve(error === undefined || error === null)),
    )
    expect(taken).toBe(false)
    expect(bad.length).toBeLessThanOrEqual(1)
  })

  it('closes idle connections', async () => {
    const { server } = await serve(60_000, { idleMs: 30 })
    const socket = connect(server.port, '127.0.0.1')
    const [hadError] = (await once(socket, 'close')) as [boolean]
    expect(hadError).toBe(false)
  })

  it('reports a port in use with an error code', async () => {
    const { server } = await serve()
    const second = new KvServer({
      host: '127.0.0.1',
      port: server.port,
      engineId: 'x',
      leases: new LeaseBook({ leaseMs: 1 }),
    })
    await expect(second.listen()).rejects.toMatchObject({ code: 'ELDR_PORT_TAKEN' })
  })
})
