/** Clients for the tests of the fake worker: raw bytes, and requests by undici. */
import { connect } from 'node:net'
import { request } from 'undici'
import type { FakeWorker } from './index.ts'

export const chat = { model: 'fake', messages: [{ role: 'user', content: 'Which experts will you ask?' }] }
export const toPrefill = {
  do_remote_decode: true,
  do_remote_prefill: false,
  remote_engine_id: null,
  remote_block_ids: null,
}

/** The bytes of a request with a content-length. */
export function bytesOf(body: unknown, path = '/v1/chat/completions', headers = ''): string {
  const text = JSON.stringify(body)
  const all = `host: fake\r\ncontent-type: application/json\r\n${headers}content-length: ${Buffer.byteLength(text)}`
  return `POST ${path} HTTP/1.1\r\n${all}\r\n\r\n${text}`
}

/**
 * Sends bytes piece by piece and returns everything received until the connection ends; `error` if it was
 * reset.
 */
export async function exchange(
  worker: FakeWorker,
  ...pieces: readonly (string | Buffer)[]
): Promise<{ text: string; error?: string }> {
  const socket = connect({ port: worker.port, host: '127.0.0.1', noDelay: true })
  const parts: Buffer[] = []
  let error: string | undefined
  socket.on('data', part => parts.push(part))
  socket.on('error', (problem: NodeJS.ErrnoException) => (error = problem.code))
  const closed = new Promise(done => socket.once('close', done))
  for (const piece of pieces) {
    if (socket.destroyed) break
    // Each piece is a separate segment.
    await new Promise<void>(done => socket.write(piece, () => setImmediate(done)))
  }
  await closed
  return { text: Buffer.concat(parts).toString('latin1'), ...(error === undefined ? {} : { error }) }
}

// oxlint-disable-next-line typescript/no-explicit-any -- tests know the shape of the response
type Posted = Promise<{ status: number; json: any }>

export async function post(worker: FakeWorker, body: unknown, path = '/v1/chat/completions'): Posted {
  const answer = await request(`${worker.url}${path}`, { method: 'POST', body: JSON.stringify(body) })
  return { status: answer.statusCode, json: await answer.body.json() }
}

/** All events of a stream. */
export async function events(
  worker: FakeWorker,
  body: object,
  path = '/v1/chat/completions',
): Promise<string[]> {
  const answer = await request(`${worker.url}${path}`, {
    method: 'POST',
    body: JSON.stringify({ ...body, stream: true }),
  })
  const text = await answer.body.text()
  return text.split('\n\n').slice(0, -1)
}

/** A streaming client that does not wait for the end. `leave` disconnects it. */
export function begin(worker: FakeWorker, body: object): { leave(): void } {
  const socket = connect({ port: worker.port, host: '127.0.0.1' })
  socket.on('error', () => undefined)
  socket.write(bytesOf({ ...body, stream: true }))
  return { leave: () => socket.destroy() }
}
