import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { afterEach, expect, it } from 'vitest'
import { ByteBudget } from '../../wire/byte-budget.ts'
import { Refusal } from './refusal.ts'
import { readBody } from './read-body.ts'

let server: Server
const sockets: Socket[] = []
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy()
  server.close()
})

it('counts buffered bodies against one budget and returns their bytes however they end', async () => {
  const budget = new ByteBudget(100_000)
  const ends: (number | string)[] = []
  server = createServer((request, response) => {
    readBody(request, 50_000, () => {}, undefined, budget)
      .then(
        body => ends.push(body.length),
        (error: unknown) => ends.push(error instanceof Refusal ? error.code : String(error)),
      )
      .finally(() => response.end())
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const until = async (condition: () => boolean) => {
    while (!condition()) await new Promise(resolve => setImmediate(resolve))
  }
  const begin = (sent: number, length: number) => {
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1').on('error', () => undefined)
    sockets.push(socket)
    socket.write(`POST / HTTP/1.1\r\nhost: a\r\ncontent-length: ${length}\r\n\r\n${'a'.repeat(sent)}`)
    return socket
  }
  const first = begin(40_000, 50_000)
  begin(40_000, 50_000)
  await until(() => budget.taken >= 80_000)
  begin(40_000, 40_000)
  await until(() => ends.length === 1)
  expect(ends).toEqual(['ELDR_OVERLOADED'])
  expect(budget.taken).toBeLessThan(90_000)
  first.destroy()
  await until(() => ends.length === 2)
  expect(budget.taken).toBeLessThan(50_000)
  begin(40_000, 40_000)
  await until(() => ends.length === 3)
  expect([ends[0], ends[2]]).toEqual(['ELDR_OVERLOADED', 40_000])
  for (const socket of sockets) socket.destroy()
  await until(() => budget.taken === 0)
})
