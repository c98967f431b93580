/** Clients that leave, stall, or use OpenAI’s own package; and the shutdown of a worker. */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import OpenAI, { APIError, BadRequestError, InternalServerError, NotFoundError } from 'openai'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { startWorker } from '../../src/worker/server/start-worker.ts'
import { ScriptedEngine } from './scripted-engine.ts'
import { eventsOf, type Served, serveScripted } from './served.ts'

let served: Served
beforeEach(async () => {
  served = await serveScripted({ maxModelLen: 1_000_000 })
})
afterEach(async () => {
  await served.worker.stop()
  served.checkIdle()
})

/** A client that reads only when told to. */
async function rawClient(body: object): Promise<Socket> {
  const { port } = served.worker
  const socket = connect(port, '127.0.0.1')
  socket.on('error', () => undefined)
  const text = JSON.stringify(body)
  socket.write(
    `POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: ${Buffer.byteLength(text)}\r\n\r\n${text}`,
  )
  socket.pause()
  await once(socket, 'connect')
  return socket
}

describe('a client that leaves', () => {
  it.each([
    ['before the first token', ''],
    ['during the stream', 'xyz'],
  ])('%s aborts its request in the engine at once', async (_, said) => {
    const gone = new AbortController()
    const answer = served.post(
      '/v1/completions',
      { prompt: 'a', stream: true, max_tokens: 100 },
      { signal: gone.signal },
    )
    const scripted = await served.engine.request(0)
    scripted.say(said)
    await answer
    gone.abort()
    await served.engine.until(() => scripted.end !== undefined)
    expect([scripted.aborted, scripted.end!.kind]).toEqual(['gone', 'aborted'])
    expect(await (await fetch(`${served.url}/metrics`)).text()).toMatch(/^eldr_clients_gone_total\{.*\} 1$/m)
  })

  it('that waits for a whole response does too, whether it resets or closes its side', async () => {
    for (const leave of [(socket: Socket) => socket.resetAndDestroy(), (socket: Socket) => socket.end()]) {
      const count = served.engine.requests.length
      const socket = await rawClient({ prompt: 'a' })
      const scripted = await served.engine.request(count)
      leave(socket)
      await served.engine.until(() => scripted.end !== undefined)
      expect(scripted.aborted).toBe('gone')
      socket.destroy()
    }
  })
})

describe('a client that does not read', () => {
  const text = 'word '.repeat(200_000)

  it('does not delay others, and gets all of its text when it reads again', async () => {
    const slow = await rawClient({ prompt: 'a', stream: true, max_tokens: 900_000, return_token_ids: false })
    const first = await served.engine.request(0)
    for (let i = 0; i < 20_000; i++) first.token(97, 'word'.repeat(20))
    const quick = served.post('/v1/completions', { prompt: 'b', max_tokens: 3, stream: true })
    ;(await served.engine.request(1)).say('xyz').finish()
    expect(await eventsOf(await quick)).toHaveLength(4)
    first.finish()
    const chunks: Buffer[] = []
    slow.on('data', (chunk: Buffer) => chunks.push(chunk))
    slow.resume()
    while (!Buffer.concat(chunks.slice(-3)).includes('[DONE]')) await once(slow, 'data')
    const body = Buffer.concat(chunks).toString('latin1')
    const said = [...body.matchAll(/"text":"(\w*)"/g)].map(([, piece]) => piece!)
    expect(said.join('').length).toBe(20_000 * 80)
    // Unread tokens arrived as one event; memory held tokens, not events.
    expect(said.length).toBeLessThan(20_000)
    slow.destroy()
  })

  it('for too long is disconnected', async () => {
    await served.worker.stop()
    served = await serveScripted({ maxModelLen: 1_000_000, clientStallMs: 50 })
    const slow = await rawClient({ prompt: 'a', stream: true, max_tokens: 900_000 })
    const first = await served.engine.request(0)
    const closed = once(slow, 'close')
    while (first.end === undefined) {
      first.token(97, text.slice(0, 10_000))
      await new Promise(setImmediate)
    }
    expect(first.aborted).toBe('gone')
    expect(await (await fetch(`${served.url}/metrics`)).text()).toMatch(
      /^eldr_clients_stalled_total\{.*\} 1$/m,
    )
    slow.resume()
    await closed
  })
})

describe('OpenAI’s client', () => {
  const client = () => new OpenAI({ baseURL: `${served.url}/v1`, apiKey: 'none', maxRetries: 0 })
  const CHAT = {
    model: 'm',
    messages: [{ role: 'user' as const, content: 'hello' }],
    max_completion_tokens: 3,
  }

  it('gets a chat and a completion', async () => {
    const chat = client().chat.completions.create(CHAT)
    ;(await served.engine.request(0)).say('xyz').finish()
    expect((await chat).choices[0]).toMatchObject({
      finish_reason: 'length',
      message: { role: 'assistant', content: 'xyz' },
    })
    const completion = client().completions.create({ model: 'm', prompt: 'a', max_tokens: 2 })
    ;(await served.engine.request(1)).say('xy').finish('stop')
    expect((await completion).choices[0]).toMatchObject({ finish_reason: 'stop', text: 'xy' })
    expect((await client().models.list()).data.map(({ id }) => id)).toEqual(['m'])
  })

  it('gets a stream, with its own helper too', async () => {
    const stream = await client().chat.completions.create({
      ...CHAT,
      stream: true,
      stream_options: { include_usage: true },
    })
    ;(await served.engine.request(0)).say('xyz').finish()
    const chunks = []
    for await (const chunk of stream) chunks.push(chunk)
    expect(chunks.map(({ choices }) => choices[0]?.delta.content ?? '').join('')).toBe('xyz')
    expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { prompt_tokens: 11, completion_tokens: 3 } })
    const helped = client().chat.completions.stream(CHAT).finalChatCompletion()
    ;(await served.engine.request(1)).say('ab').finish()
    expect((await helped).choices[0]!.message.content).toBe('ab')
  })

  it('maps errors to its own classes', async () => {
    await expect(client().chat.completions.create({ ...CHAT, n: 3 })).rejects.toBeInstanceOf(BadRequestError)
    await expect(client().chat.completions.create({ ...CHAT, model: 'other' })).rejects.toBeInstanceOf(
      NotFoundError,
    )
    const failing = client()
      .chat.completions.create(CHAT)
      .catch((reason: unknown) => reason)
    ;(await served.engine.request(0)).fail(500, 'it broke')
    expect(await failing).toBeInstanceOf(InternalServerError)
    const stream = await client().chat.completions.create({ ...CHAT, stream: true })
    ;(await served.engine.request(1)).say('x').fail(500, 'it broke')
    const read = async () => {
      for await (const _ of stream);
    }
    const error = await read().catch((reason: unknown) => reason)
    expect(error).toBeInstanceOf(APIError)
    expect((error as APIError).message).toContain('it broke')
  })

  it('that aborts a request ends it in the engine', async () => {
    const stream = await client().chat.completions.create({ ...CHAT, stream: true })
    const scripted = await served.engine.request(0)
    stream.controller.abort()
    await served.engine.until(() => scripted.end !== undefined)
    expect(scripted.aborted).toBe('gone')
  })
})

describe('a worker during shutdown', () => {
  it('completes a request that ends in time, and closes the engine', async () => {
    const engine = new ScriptedEngine()
    const { settings, log } = served.worker.context
    const worker = await startWorker({
      host: '127.0.0.1',
      port: 0,
      kvPort: 0,
      kvHost: '127.0.0.1',
      settings,
      engine,
      log,
      graceMs: 60_000,
    })
    const answer = fetch(`${worker.url}/v1/completions`, {
      method: 'POST',
      body: JSON.stringify({ prompt: 'a', max_tokens: 1 }),
    })
    const scripted = await engine.request(0)
    const stopped = worker.stop()
    scripted.say('x').finish()
    expect(((await (await answer).json()) as { choices: unknown }).choices).toMatchObject([{ text: 'x' }])
    await stopped
    expect(engine.closed).toBe(true)
    await expect(fetch(`${worker.url}/health`)).rejects.toThrow('fetch failed')
  })

  it('reports a port in use with an error code', async () => {
    const { settings, log } = served.worker.context
    const started = startWorker({
      host: '127.0.0.1',
      port: served.worker.port,
      kvPort: 0,
      kvHost: '127.0.0.1',
      settings,
      engine: new ScriptedEngine(),
      log,
      graceMs: 0,
    })
    await expect(started).rejects.toMatchObject({ code: 'ELDR_PORT_TAKEN' })
  })
})
