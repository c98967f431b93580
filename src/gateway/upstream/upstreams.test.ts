import { once } from 'node:events'
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import { afterEach, describe, expect, it } from 'vitest'
import { stopClock } from '../../../test/manual-clock.ts'
import { UpstreamFailure, Upstreams } from './upstreams.ts'

const OK = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}'
const LIMITS = { timeoutMs: 60_000, maxBytes: 1_000_000 }
const GET = { method: 'GET', path: '/health', headers: {} } as const

let server: Server
let upstreams: Upstreams
const sockets: Socket[] = []

/** Starts a server that passes each connection and its number to `serve`. */
async function start(
  serve: (socket: Socket, connection: number) => void,
  idleConnectionMs = 10_000,
): Promise<string> {
  server = createServer({ noDelay: true }, socket => {
    socket.on('error', () => {})
    serve(socket, sockets.push(socket) - 1)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  upstreams = new Upstreams({ connectMs: 60_000, idleConnectionMs })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

afterEach(() => {
  upstreams.close()
  for (const socket of sockets.splice(0)) socket.destroy()
  server.close()
})

const answer = (bytes: string) => (socket: Socket) => void socket.on('data', () => socket.write(bytes))

describe('connections to a worker', () => {
  it('are reused, and there is one per concurrent request', async () => {
    const url = await start(answer(OK))
    for (let n = 0; n < 3; n++) await upstreams.ask(url, GET, LIMITS)
    expect(sockets).toHaveLength(1)
    await Promise.all([1, 2, 3].map(() => upstreams.ask(url, GET, LIMITS)))
    expect(sockets).toHaveLength(3)
  })

  it('are closed after the idle timeout', async () => {
    const url = await start(answer(OK), 20)
    await upstreams.ask(url, GET, LIMITS)
    await once(sockets[0]!, 'close')
    await upstreams.ask(url, GET, LIMITS)
    expect(sockets).toHaveLength(2)
  })

  it('are not reused if the worker closes them or sends unrequested bytes', async () => {
    const url = await start((socket, connection) => {
      socket.on('data', () => socket.write(connection === 1 ? `${OK}${OK}` : OK))
    })
    await upstreams.ask(url, GET, LIMITS)
    const closed = once(sockets[0]!, 'close')
    sockets[0]!.end()
    await closed
    await upstreams.ask(url, GET, LIMITS)
    await once(sockets[1]!, 'close')
    await upstreams.ask(url, GET, LIMITS)
    const last = once(sockets[2]!, 'close')
    sockets[2]!.write('unrequested bytes')
    await last
    expect(sockets).toHaveLength(3)
  })

  it('that were idle for long and close before a response: the request is sent once more', async () => {
    let broken = 0
    const url = await start((socket, connection) => {
      let requests = 0
      socket.on('data', () => {
        if (connection === 0 && ++requests === 2) {
          broken++
          socket.destroy()
        } else socket.write(OK)
      })
    })
    const clock = stopClock()
    await upstreams.ask(url, GET, LIMITS)
    clock.advance(600)
    expect(await upstreams.ask(url, GET, LIMITS)).toMatchObject({ status: 200 })
    expect([broken, sockets.length]).toEqual([1, 2])
  })

  it('that were just used and close count as a failure of the worker', async () => {
    const url = await start(socket => {
      let requests = 0
      socket.on('data', () => (++requests === 2 ? socket.destroy() : socket.write(OK)))
    })
    stopClock()
    await upstreams.ask(url, GET, LIMITS)
    await expect(upstreams.ask(url, GET, LIMITS)).rejects.toMatchObject({ kind: 'reset' })
    expect(sockets).toHaveLength(1)
  })

  it('are closed if the worker asks for it', async () => {
    const url = await start(answer(OK.replace('content-type', 'connection: close\r\ncontent-type')))
    await upstreams.ask(url, GET, LIMITS)
    await once(sockets[0]!, 'close')
    await upstreams.ask(url, GET, LIMITS)
    expect(sockets).toHaveLength(2)
  })

  it('are not reused if the response arrives before the whole request is sent', async () => {
    const url = await start(socket => {
      socket.once('data', () => {
        socket.pause()
        socket.write(OK)
      })
    })
    const body = Buffer.alloc(32 << 20)
    expect(await upstreams.ask(url, { method: 'POST', path: '/', headers: {}, body }, LIMITS)).toMatchObject({
      status: 200,
    })
    sockets[0]!.resume()
    await once(sockets[0]!, 'close')
  })

  it('send bodies of any size unchanged', async () => {
    const got: string[] = []
    const url = await start(socket => {
      let text = ''
      socket.on('data', bytes => {
        text += bytes.toString('latin1')
        if (!text.endsWith('!')) return
        got.push(text)
        text = ''
        socket.write(OK)
      })
    })
    for (const size of [1, 20_000]) {
      const body = Buffer.from(`${'a'.repeat(size)}!`)
      await upstreams.ask(url, { method: 'POST', path: '/v1/x', headers: { 'x-a': '1' }, body }, LIMITS)
    }
    const head = (length: number) =>
      `POST /v1/x HTTP/1.1\r\nhost: ${new URL(url).host}\r\nx-a: 1\r\ncontent-length: ${length}\r\n\r\n`
    expect(got).toEqual([`${head(2)}a!`, `${head(20_001)}${'a'.repeat(20_000)}!`])
  })
})

describe('a request', () => {
  it('fails if nothing listens', async () => {
    const url = await start(() => {})
    server.close()
    await expect(upstreams.ask(url, GET, LIMITS)).rejects.toMatchObject({ kind: 'connect' })
  })

  it.each([
    ['reset', '', 'reset'],
    ['cut', OK.slice(0, -1), 'reset'],
    ['no HTTP', 'hello\r\n\r\n', 'garbage'],
    ['too large', `${OK.replace('length: 2', 'length: 3000000')}${'a'.repeat(3_000_000)}`, 'too_large'],
  ])('fails if the response is %s', async (_, bytes, kind) => {
    const url = await start(socket => void socket.once('data', () => socket.end(bytes)))
    await expect(upstreams.ask(url, GET, LIMITS)).rejects.toMatchObject({ kind })
  })

  it('fails after its timeout, and its connection is closed', async () => {
    const url = await start(() => {})
    await expect(upstreams.ask(url, GET, { ...LIMITS, timeoutMs: 20 })).rejects.toMatchObject({
      kind: 'timeout',
    })
    if (sockets.length === 0) await once(server, 'connection')
    sockets[0]!.resume()
    await once(sockets[0]!, 'close')
  })

  it('ends once, even if its reader throws', async () => {
    const url = await start(answer(OK))
    const heard: unknown[] = []
    await new Promise<void>(resolve => {
      upstreams.open(url, GET, {
        onStart: () => {
          throw new Error('oops')
        },
        onData: () => heard.push('data'),
        onEnd: () => heard.push('end'),
        onFailure: failure => {
          heard.push(failure)
          resolve()
        },
      })
    })
    expect(heard).toEqual([expect.any(UpstreamFailure)])
    expect(heard[0]).toMatchObject({ kind: 'fault', cause: { message: 'oops' } })
  })

  it('is paused and resumed without losing bytes', async () => {
    const size = 8 << 20
    const url = await start(
      answer(`${OK.replace('length: 2', `length: ${size}`).slice(0, -2)}${'a'.repeat(size)}`),
    )
    let bytes = 0
    await new Promise<void>((resolve, reject) => {
      const call = upstreams.open(url, GET, {
        onStart: () => {},
        onData: chunk => {
          bytes += chunk.length
          call.pause()
          setImmediate(() => call.resume())
        },
        onEnd: resolve,
        onFailure: reject,
      })
    })
    expect(bytes).toBe(size)
  })

  it.each([{ 'x-a': 'b\r\nc: d' }, { 'x-a': 'ü€' }])(
    'with an injected header is not sent: %o',
    async headers => {
      const url = await start(answer(OK))
      expect(() =>
        upstreams.open(url, { ...GET, headers }, { onStart() {}, onData() {}, onEnd() {}, onFailure() {} }),
      ).toThrow(/cannot be sent/)
      expect(sockets).toHaveLength(0)
    },
  )
})

describe('a caller that gives up', () => {
  const stoppable = () => {
    let stop = (_reason: UpstreamFailure) => {}
    const signal = { onStop: (listener: (reason: UpstreamFailure) => void) => ((stop = listener), () => {}) }
    return { signal, stop: () => stop(new UpstreamFailure('aborted', 'the client left')) }
  }

  it('still receives the response of a worker that has not noticed, and does not use the connection again', async () => {
    const url = await start((socket, connection) => {
      if (connection > 0) return answer(OK)(socket)
      socket.allowHalfOpen = true
      socket.on('data', () => {}).on('end', () => socket.end(OK))
    })
    const { signal, stop } = stoppable()
    let onLate = (_answer: unknown) => {}
    const late = new Promise(resolve => (onLate = resolve))
    const asked = upstreams.ask(url, GET, { ...LIMITS, onLate }, signal)
    while (sockets.length === 0) await new Promise(setImmediate)
    await once(sockets[0]!, 'data')
    stop()
    await expect(asked).rejects.toMatchObject({ kind: 'aborted' })
    expect(await late).toMatchObject({ status: 200, body: Buffer.from('{}') })
    await upstreams.ask(url, GET, LIMITS)
    expect(sockets).toHaveLength(2)
  })

  it('gets no late response if the worker closes the connection instead, even one that was idle for long', async () => {
    let requests = 0
    const url = await start(socket => {
      socket.on('data', () => void (requests++ === 0 && socket.write(OK)))
    })
    const clock = stopClock()
    await upstreams.ask(url, GET, LIMITS)
    clock.advance(600)
    const { signal, stop } = stoppable()
    const asked = upstreams.ask(
      url,
      GET,
      { ...LIMITS, onLate: () => expect.unreachable('there is no response') },
      signal,
    )
    await once(sockets[0]!, 'data')
    const closed = once(sockets[0]!, 'close')
    stop()
    await expect(asked).rejects.toMatchObject({ kind: 'aborted' })
    await closed
    while (upstreams.trafficOf(url)!.busy > 0) await new Promise(setImmediate)
    expect([requests, sockets.length]).toEqual([2, 1])
  })
})
