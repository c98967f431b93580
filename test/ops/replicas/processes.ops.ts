/**
 * Three gateways as operators run them, embedded workers, a store that fails under traffic, and a gateway
 * that is killed.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { readSamples } from '../../../src/cluster/metrics-text.ts'
import {
  killAll,
  type RunningProcess,
  startGatewayProcess,
  startWorkerProcess,
  type WorkerProcess,
} from '../../worker/processes.ts'
import { until } from './gateways.ts'
import { type Store, startStore } from './store.ts'

const LEASE_MS = 1_500
let folder: string
let store: Store
let workers: WorkerProcess[]
let gateways: RunningProcess[]
const stop = new AbortController()
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'eldr-replicas-'))
  const [started, ...processes] = await Promise.all([
    startStore({ password: 'sk-store' }),
    ...['prefill', 'decode', 'decode'].map(role =>
      startWorkerProcess('--role', role, '--speed', '4', '--lease-ms', '5000'),
    ),
  ])
  store = started
  workers = processes
  gateways = await Promise.all([0, 1, 2].map(gateway))
  await until('all to be ready', async () =>
    (await Promise.all(gateways.map(ready))).every(
      ({ status, replicas }) => status === 'ready' && replicas.replicas === 3,
    ),
  )
})
afterAll(async () => {
  stop.abort()
  await killAll()
  await store.close()
  rmSync(folder, { recursive: true, force: true })
})

function gateway(n: number): Promise<RunningProcess> {
  const [prefill, ...decodes] = workers
  const file = join(folder, `${n}.yaml`)
  writeFileSync(file, JSON.stringify({ replicas: { leaseMs: LEASE_MS, timeoutMs: 1_000, retryMs: 50 } }))
  return startGatewayProcess([
    '--config',
    file,
    '--replica-store',
    store.url,
    '--replica-id',
    `gateway-${n}`,
    '--policy',
    'union',
    '--prefill',
    prefill!.url,
    ...decodes.flatMap(({ url }) => ['--decode', url]),
  ])
}
// oxlint-disable-next-line typescript/no-explicit-any -- tests know the response
const ready = async ({ url }: RunningProcess): Promise<any> => (await fetch(`${url}/ready`)).json()
async function sum({ url }: RunningProcess, ...names: string[]): Promise<number> {
  const samples = readSamples(await (await fetch(`${url}/metrics`)).text(), new Set(names))
  return samples.reduce((total, { value }) => total + value, 0)
}
const elsewhere = (one: RunningProcess) => sum(one, 'eldr_worker_inflight_elsewhere')
/** Gateways keep connections for health checks, but no request may be left. */
const idle = () =>
  Promise.all(
    workers.map(worker =>
      worker.until(
        ({ requests, leases, leased_blocks, stats }) =>
          requests + leases + leased_blocks + stats.running + stats.waiting + stats.blocksKept === 0,
        'no request',
      ),
    ),
  )

/** Sends requests on several lanes until `signal` aborts. Resolves with their number and the failures. */
function traffic(
  to: RunningProcess,
  lanes: number,
  signal: AbortSignal,
): Promise<{ sent: number; bad: string[] }> {
  const result = { sent: 0, bad: [] as string[] }
  const lane = async (number: number) => {
    for (let n = 0; !signal.aborted; n++) {
      result.sent++
      try {
        const answer = await to.post('/v1/completions', {
          prompt: `Lane ${number} asks ${n}`,
          max_tokens: 12,
          stream: n % 2 === 0,
          ignore_eos: true,
        })
        const text = await answer.text()
        if (answer.status !== 200 || (n % 2 === 0 && !text.includes('[DONE]')))
          result.bad.push(`${answer.status}: ${text.slice(-200)}`)
      } catch (error) {
        result.bad.push(String(error))
      }
    }
  }
  return Promise.all(Array.from({ length: lanes }, (_, number) => lane(number))).then(() => result)
}

describe('three gateways', () => {
  it('serve requests while the store hangs and restarts, and end with views that are zero', async () => {
    const runs = gateways.map(each => traffic(each, 6, stop.signal))
    await until('each to see the others', async () =>
      (await Promise.all(gateways.map(elsewhere))).every(count => count > 0),
    )
    store.hang()
    await until('it to be noticed', async () =>
      (await Promise.all(gateways.map(ready))).every(({ replicas }) => replicas.store === 'down'),
    )
    store.goOn()
    await until('them to be together', async () =>
      (await Promise.all(gateways.map(ready))).every(({ replicas }) => replicas.replicas === 3),
    )
    await store.kill()
    await until('each to be alone', async () =>
      (await Promise.all(gateways.map(elsewhere))).every(count => count === 0),
    )
    await store.start()
    await until('each to see the others again', async () =>
      (await Promise.all(gateways.map(elsewhere))).every(count => count > 0),
    )
    stop.abort()
    for (const { sent, bad } of await Promise.all(runs)) {
      expect(bad).toEqual([])
      expect(sent).toBeGreaterThan(20)
    }
    await until('nothing anywhere', async () =>
      (
        await Promise.all(
          gateways.map(each => sum(each, 'eldr_worker_inflight', 'eldr_worker_inflight_elsewhere')),
        )
      ).every(count => count === 0),
    )
    for (const each of gateways)
      expect(await sum(each, 'eldr_ticket_leaks_total', 'eldr_replica_ignored_total')).toBe(0)
    await idle()
    for (const { said } of gateways) expect(said()).not.toContain('sk-store')
  })

  it('drop a killed gateway when its lease ends, and accept it after a restart', async () => {
    const [first, second, victim] = gateways as [RunningProcess, RunningProcess, RunningProcess]
    const streams = await Promise.all(
      [0, 1, 2].map(() =>
        victim.post('/v1/completions', { prompt: 'Long', max_tokens: 2_000, stream: true, ignore_eos: true }),
      ),
    )
    await until(
      'them to be seen',
      async () => (await elsewhere(first)) === 3 && (await elsewhere(second)) === 3,
    )
    const broken = streams.map(stream =>
      stream.text().then(
        () => 'ended',
        () => 'broken',
      ),
    )
    await victim.kill()
    await until('them to be gone', async () => (await elsewhere(first)) + (await elsewhere(second)) === 0)
    expect(await Promise.all(broken)).toEqual(['broken', 'broken', 'broken'])
    expect(first.said()).toContain('considered dead')
    gateways[2] = await gateway(2)
    await until('it to be back', async () =>
      (await Promise.all(gateways.map(ready))).every(
        ({ status, replicas }) => status === 'ready' && replicas.replicas === 3,
      ),
    )
    expect(await Promise.all(gateways.map(elsewhere))).toEqual([0, 0, 0])
    await idle()
  })

  it('stop cleanly, and the others notice immediately', async () => {
    const said = () => gateways[0]!.said().slice(before)
    const before = gateways[0]!.said().length
    expect(await gateways[2]!.stop()).toBe(0)
    await until('two to be left', async () => (await ready(gateways[0]!)).replicas.replicas === 2)
    // It said goodbye: the others did not have to wait for its lease to end.
    await until('the log', () => said().includes('replica left'))
    expect(said()).not.toContain('considered dead')
    expect(await Promise.all(gateways.slice(0, 2).map(each => each.stop()))).toEqual([0, 0])
    expect(await store.ask('KEYS', '*')).toEqual([])
  })
})
