/** Bugs planted in a proxy in front of a server: the client's observations and the checker find each. */
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { AdminLedger } from '../check/admin-ledger.ts'
import { Checker } from '../check/checker.ts'
import { type KnownAnswer, nowMs, type Observation } from '../observation.ts'
import { exchange } from './exchange.ts'
import { type Plant, startPlantedProxy } from './planted-proxy.ts'

const IDS = Array.from({ length: 16 }, (_, index) => 500 + ((index * 29) % 83))
const KNOWN: KnownAnswer = {
  name: 'sixteen tokens',
  path: '/v1/completions',
  body: { prompt: 'a' },
  ids: IDS,
  text: IDS.map(id => ` ${id}`).join(''),
  finish: 'length',
  promptTokens: 1,
}
let origin: Server
let url = ''
let policy = 'jsq'
beforeAll(async () => {
  origin = createServer((incoming, response) => {
    if (incoming.method === 'PUT') {
      incoming.on('data', (body: Buffer) => (policy = body.toString()))
      incoming.on('end', () => response.end('{}'))
      return
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    for (const [at, id] of IDS.entries()) {
      const finish_reason = at === IDS.length - 1 ? 'length' : null
      const choice = { index: 0, text: ` ${id}`, token_ids: [id], finish_reason }
      response.write(`data: ${JSON.stringify({ id: 'cmpl-1', created: 1, choices: [choice] })}\n\n`)
    }
    response.end('data: [DONE]\n\n')
  }).listen(0, '127.0.0.1')
  await once(origin, 'listening')
  url = `http://127.0.0.1:${(origin.address() as AddressInfo).port}`
})
afterAll(() => origin.close())

const ledger = () => new AdminLedger({ gw1: { policy: 'jsq' } }, {})
function kindsOf(seen: Observation): string[] {
  const topology = { prefills: [], decodes: [] }
  const checker = new Checker({ known: [KNOWN], limitMs: 1_000, topology, ledger: ledger(), complete: false })
  checker.ended([seen])
  return checker.violations.map(({ what }) => what)
}
const ask = (at: string, wantIds = true) =>
  exchange({
    id: 1,
    ask: 0,
    known: KNOWN,
    gateway: 'gw1',
    url: at,
    stream: true,
    wantIds,
    wantUsage: false,
    giveUpMs: 800,
  }).ended

describe('through a proxy', () => {
  it('an answer without a bug passes, and its times are known', async () => {
    const seen = await ask(url)
    expect(kindsOf(seen)).toEqual([])
    expect(seen.firstMs).toBeLessThanOrEqual(seen.endMs)
    expect(seen.endMs).toBeLessThanOrEqual(nowMs())
  })

  it.each<[Plant, string, string]>([
    ['repeat', 'repeated token', 'changed text'],
    ['drop', 'lost token', 'changed text'],
    ['change', 'changed token', 'changed text'],
    ['swallow', 'swallowed end', 'swallowed end'],
    ['twice', 'ended twice', 'ended twice'],
    ['hang', 'hang', 'hang'],
    ['cut', 'connection broke', 'connection broke'],
  ])('%s is found with token ids and without', async (plant, withIds, withoutIds) => {
    const { server, url: through } = await startPlantedProxy(plant, url, 1)
    expect(kindsOf(await ask(through))).toContain(withIds)
    expect(kindsOf(await ask(through, false))).toContain(withoutIds)
    server.closeAllConnections()
    server.close()
  })

  it('a forgotten admin change is found', async () => {
    const { server, url: through } = await startPlantedProxy('forget', url)
    const change = async (to: string) => {
      const made = ledger()
      const attempt = made.attempt({ gateway: 'gw1', field: 'policy', value: 'union' })
      const { status } = await fetch(`${to}/eldr/policy`, { method: 'PUT', body: 'union' })
      if (status === 200) attempt.made(nowMs())
      return made.problems({ gw1: { policy } }).map(([what]) => what)
    }
    expect(await change(through)).toEqual(['lost admin change'])
    expect(await change(url)).toEqual([])
    server.close()
  })
})
