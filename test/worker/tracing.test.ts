/** Traces of a gateway and embedded workers as processes, and signals to that gateway. */
import { Writable } from 'node:stream'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { createLog } from '../../src/gateway/observe/log/log.ts'
import { type OtlpReceiver, startReceiver } from '../gateway/otlp-receiver.ts'
import {
  killAll,
  polled,
  type RunningProcess,
  startGatewayProcess,
  startWorkerProcess,
  type WorkerProcess,
} from './processes.ts'
import { eventsOf, serveScripted } from './served.ts'

let workers: WorkerProcess[]
let receiver: OtlpReceiver
beforeAll(async () => {
  receiver = await startReceiver()
  workers = await Promise.all(
    ['prefill', 'decode', 'decode'].map(role => startWorkerProcess('--role', role, '--speed', '4')),
  )
})
afterAll(async () => {
  await killAll()
  await receiver.close()
})

const [prefill, decode] = [() => workers[0]!, () => workers.slice(1)]
let gateway: RunningProcess | undefined
afterEach(() => gateway?.kill().then(() => void (gateway = undefined)))

async function start(...flags: string[]): Promise<RunningProcess> {
  const urls = ['--prefill', prefill().url, ...decode().flatMap(({ url }) => ['--decode', url])]
  gateway = await startGatewayProcess([...urls, ...flags])
  const { url } = gateway
  await polled(
    async () => (await fetch(`${url}/eldr/workers`)).text(),
    text => text.split('"state":"ready"').length === 4,
    '3 workers',
  )
  return gateway
}
const chat = (to: RunningProcess, id: string, body: object = {}) =>
  to.post(
    '/v1/chat/completions',
    { messages: [{ role: 'user', content: 'Hello there' }], max_tokens: 8, ...body },
    { headers: { 'x-request-id': id } },
  )

/** Checks again after a turn of the event loop. */
const saidBy = (running: RunningProcess) => () =>
  new Promise<string>(resolve => setImmediate(() => resolve(running.said())))

describe('a gateway with --otlp-endpoint', () => {
  it('traces requests on real workers, and sends the last spans at shutdown', async () => {
    const running = await start('--otlp-endpoint', receiver.url)
    expect((await eventsOf(await chat(running, 'whole', { stream: true }))).at(-1)).toBe('[DONE]')
    await (await chat(running, 'split', { n: 2 })).text()
    const stopped = running.stop()
    const [whole, split] = await Promise.all([receiver.traceOf('whole'), receiver.traceOf('split')])
    expect(await stopped).toBe(0)
    gateway = undefined
    expect([whole.root.name, ...whole.children.map(({ name }) => name)]).toEqual([
      'POST /v1/chat/completions',
      'prefill',
      'route',
      'decode',
    ])
    // Events of a stream count as tokens; the first event of a chat has only the role.
    expect(whole.root.attributes).toMatchObject({
      'eldr.outcome': 'ok',
      'eldr.output_tokens': 9,
      'eldr.policy': 'union',
      'eldr.coverage': 1,
    })
    expect(new URL(prefill().url).host).toBe(whole.root.attributes['eldr.prefill.worker'])
    expect(decode().map(({ url }) => new URL(url).host)).toContain(whole.root.attributes['eldr.worker'])
    const [read, , generated] = whole.children
    expect(generated!.startNanos).toBeGreaterThanOrEqual(read!.endNanos)
    expect(generated!.events[0]!.nanos).toBeLessThan(generated!.endNanos)
    expect(split.children.map(({ name }) => name).toSorted()).toEqual([
      'decode',
      'decode',
      'prefill',
      'prefill',
      'route',
      'route',
    ])
  })

  it('whose collector is unreachable serves and stops normally, and reports the error', async () => {
    const gone = await startReceiver()
    await gone.close()
    const running = await start('--otlp-endpoint', gone.url)
    expect((await chat(running, 'a')).status).toBe(200)
    await polled(saidBy(running), said => said.includes('trace export failed'), 'a warning')
    expect(running.said()).toContain('ECONNREFUSED')
    expect(await running.stop()).toBe(0)
    gateway = undefined
  })
})

describe('SIGUSR2', () => {
  it('switches the gateway’s log to debug and back', async () => {
    const running = await start()
    const level = async () =>
      ((await (await fetch(`${running.url}/eldr/log-level`)).json()) as { level: string }).level
    running.child.kill('SIGUSR2')
    await polled(level, now => now === 'debug', 'debug')
    await (await chat(running, 'seen')).text()
    await polled(saidBy(running), said => /"reqId":"seen","leg":"decode"/.test(said), 'a line of the leg')
    running.child.kill('SIGUSR2')
    await polled(level, now => now === 'info', 'info')
    expect(running.child.exitCode).toBeNull()
  })
})

describe('a worker', () => {
  it('logs trace and request id of a failed request', async () => {
    const lines: string[] = []
    const out = new Writable({
      write: (chunk: Buffer, _, done) => void (lines.push(chunk.toString()), done()),
    })
    const served = await serveScripted(
      {},
      createLog({ logLevel: 'error', logFormat: 'json' }, out as unknown as typeof process.stderr),
    )
    served.engine.resetPrefixCache = () => {
      throw new Error('it broke')
    }
    const traceId = '4bf92f3577b34da6a3ce929d0e0e4736'
    const wrong = { traceparent: 'nonsense', 'x-request-id': 'b', connection: 'close' }
    const right = {
      traceparent: `00-${traceId}-00f067aa0ba902b7-01`,
      'x-request-id': 'a',
      connection: 'close',
    }
    for (const headers of [right, wrong]) {
      expect((await served.post('/reset_prefix_cache', '', { headers })).status).toBe(500)
    }
    const said = lines.map(line => JSON.parse(line) as Record<string, unknown>)
    expect(said.map(({ reqId, traceId: id }) => [reqId, id])).toEqual([
      ['a', traceId],
      ['b', undefined],
    ])
    await served.worker.stop()
  })
})
