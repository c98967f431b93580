/**
 * Clients that send part of a body and stop: the memory they hold is limited, others get a retry-after, and
 * everything is released.
 */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { afterEach, expect, it } from 'vitest'
import { type Served, serveScripted } from './served.ts'

const BUDGET = 1_000_000
const SENT = 60_000

let served: Served
const sockets: Socket[] = []
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy()
  await served.worker.stop()
})

const taken = () => served.worker.context.bodies.budget.taken
async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await new Promise(resolve => setImmediate(resolve))
}

/** Sends part of a body and returns the response. */
function begin(framing: string, part: string | Buffer): { socket: Socket; answer: Promise<string> } {
  const { hostname, port } = new URL(served.url)
  const socket = connect({ host: hostname, port: Number(port) })
  sockets.push(socket.on('error', () => undefined))
  socket.write(
    `POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n${framing}\r\n\r\n`,
  )
  socket.write(part)
  return { socket, answer: once(socket, 'data').then(([data]: Buffer[]) => data!.toString()) }
}

async function isServed(): Promise<void> {
  const answer = served.post('/v1/completions', { prompt: 'abc' })
  await served.engine.until(() => served.engine.requests.length > 0)
  for (const request of served.engine.requests.splice(0)) request.say('ok').finish()
  expect((await answer).status).toBe(200)
}

it('limits the memory of unfinished bodies and releases it when their clients leave', async () => {
  served = await serveScripted({ maxBodyBytes: 100_000, bodyBudgetBytes: BUDGET })
  const part = Buffer.alloc(SENT, ' ')
  const clients = Array.from({ length: 40 }, () => begin('content-length: 90000', part))
  const answers: string[] = []
  for (const { answer } of clients) void answer.then(text => answers.push(text))
  // Sixteen fit; each further one is refused immediately.
  const most = Math.floor(BUDGET / SENT)
  await until(() => answers.length >= 40 - most && taken() >= (most - 1) * SENT)
  expect(taken()).toBeLessThanOrEqual(BUDGET)
  for (const answer of answers) {
    expect(answer).toMatch(/^HTTP\/1\.1 503 /)
    expect(answer).toMatch(/\r\nretry-after: 1\r\n/i)
    expect(answer).toContain('Too many request bodies')
  }
  for (const { socket } of clients) socket.destroy()
  await until(() => taken() === 0)
  await isServed()
  expect(taken()).toBe(0)
})

it('counts the real memory of a body sent in single bytes', async () => {
  served = await serveScripted({ maxBodyBytes: 100_000, bodyBudgetBytes: BUDGET })
  const { answer } = begin('transfer-encoding: chunked', '1\r\n \r\n'.repeat(10_000))
  expect(await answer).toMatch(/^HTTP\/1\.1 503 /)
  await until(() => taken() === 0)
  await isServed()
})

it('releases the bytes of bodies that are refused, too large or invalid JSON', async () => {
  served = await serveScripted({ maxBodyBytes: 100_000, bodyBudgetBytes: BUDGET })
  for (const body of [
    '{',
    '"a"',
    JSON.stringify({ prompt: '' }),
    JSON.stringify({ prompt: 'a'.repeat(100_000) }),
  ]) {
    expect((await served.post('/v1/completions', body)).status).toBeGreaterThanOrEqual(400)
    expect(taken()).toBe(0)
  }
  const chunked = begin(
    'transfer-encoding: chunked',
    `${(100_001).toString(16)}\r\n${'a'.repeat(100_001)}\r\n`,
  )
  expect(await chunked.answer).toMatch(/^HTTP\/1\.1 413 /)
  expect(taken()).toBe(0)
})
