/**
 * Several engines behind one URL (`eldr worker --data-parallel-size`): alone, and behind a gateway to which
 * each is a worker.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ofEngine, readSamples, sumByName } from '../../src/cluster/metrics-text.ts'
import {
  polled,
  type RunningProcess,
  startGatewayProcess,
  startWorkerProcess,
  type WorkerProcess,
} from './processes.ts'

const PROMPT =
  'one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen'
let prefill: WorkerProcess
let decode: WorkerProcess
beforeAll(async () => {
  const flags = [
    '--speed',
    'max',
    '--block-size',
    '4',
    '--enable-prompt-tokens-details',
    '--data-parallel-size',
  ]
  ;[prefill, decode] = await Promise.all([
    startWorkerProcess('--role', 'prefill', ...flags, '2'),
    startWorkerProcess('--role', 'decode', ...flags, '3'),
  ])
})
afterAll(async () => {
  await Promise.all([prefill.stop(), decode.stop()])
})

const on = (dpRank: number | string) => ({
  headers: { connection: 'close', 'x-data-parallel-rank': String(dpRank) },
})
/** `leftovers` would count connections that are kept alive. */
const CLOSE = { headers: { connection: 'close' } }
const generate = (worker: RunningProcess, body: object, init?: RequestInit) =>
  worker.post('/v1/completions', { prompt: PROMPT, max_tokens: 4, ...body }, init)
/** Per rank. */
async function counted(worker: RunningProcess, name: string, ranks: number): Promise<number[]> {
  const text = await (await fetch(`${worker.url}/metrics`, CLOSE)).text()
  const samples = readSamples(text, new Set([name]))
  expect(samples.map(({ labels }) => labels['engine'])).toEqual(
    Array.from({ length: ranks }, (_, rank) => String(rank)),
  )
  return Array.from({ length: ranks }, (_, rank) => sumByName(ofEngine(samples, rank)).get(name)!)
}

describe('engines behind one URL', () => {
  it('have separate blocks and prefix caches', async () => {
    const cached = async (rank: number) => {
      const body = (await (await generate(decode, { prompt: `of its own, ${PROMPT}` }, on(rank))).json()) as {
        usage: { prompt_tokens_details?: { cached_tokens: number } }
      }
      return body.usage.prompt_tokens_details?.cached_tokens ?? 0
    }
    expect(await cached(0)).toBe(0)
    expect(await cached(1)).toBe(0)
    expect(await cached(1)).toBeGreaterThan(0)
    const states = await Promise.all(
      [0, 1, 2].map(
        async rank =>
          (await fetch(`${decode.url}/eldr/state`, on(rank))).json() as Promise<{
            engine_id: string
            stats: { blocksCached: number }
          }>,
      ),
    )
    expect(states.map(({ stats }) => stats.blocksCached > 0)).toEqual([true, true, false])
    expect(states.map(({ engine_id: id }) => id.replace(/^[\da-f-]+/, ''))).toEqual(['_dp0', '_dp1', '_dp2'])
    expect(await decode.leftovers()).toEqual([])
  })

  it('are selected by a header; an unknown rank is refused, and a value that is not a number is ignored', async () => {
    for (const rank of ['3', '-1', '1000000000']) {
      const refused = await generate(decode, {}, on(rank))
      expect(refused.status).toBe(400)
      expect(await refused.json()).toMatchObject({
        error: { message: `data_parallel_rank ${rank} is out of range [0, 3).` },
      })
    }
    for (const rank of ['x', '1.5', '']) expect((await generate(decode, {}, on(rank))).status).toBe(200)
    expect((await fetch(`${decode.url}/health`, on('99'))).status).toBe(200)
    expect(await decode.leftovers()).toEqual([])
  })

  it('hand off their own blocks, and a refused decode leg frees them', async () => {
    const handoff = async (rank: number) => {
      const kv = {
        do_remote_decode: true,
        do_remote_prefill: false,
        remote_engine_id: null,
        remote_block_ids: null,
        remote_host: null,
        remote_port: null,
      }
      return (
        (await (await generate(prefill, { max_tokens: 1, kv_transfer_params: kv }, on(rank))).json()) as {
          kv_transfer_params: { remote_engine_id: string; remote_port: number }
        }
      ).kv_transfer_params
    }
    const [first, second] = [await handoff(0), await handoff(1)]
    expect(second.remote_engine_id).toBe(first.remote_engine_id.replace('_dp0', '_dp1'))
    expect(second.remote_port).not.toBe(first.remote_port)
    const texts = await Promise.all(
      [first, second].map(
        async (kv, rank) =>
          (
            (await (await generate(decode, { kv_transfer_params: kv }, on(rank))).json()) as {
              choices: { text: string }[]
            }
          ).choices[0]!.text,
      ),
    )
    expect(texts[0]).toBe(texts[1])
    expect((await generate(decode, { kv_transfer_params: await handoff(1) }, on(7))).status).toBe(400)
    // The decode worker notifies the prefill worker after its response.
    const leases = async () =>
      ((await (await fetch(`${prefill.url}/eldr/state`, on(1))).json()) as { leases: number }).leases
    await polled(leases, count => count === 0, 'the lease to end')
    expect(await prefill.leftovers()).toEqual([])
  })

  it('share one metrics page with each metric once', async () => {
    const page = await (await fetch(`${prefill.url}/metrics`, CLOSE)).text()
    const helps = page.split('\n').filter(line => line.startsWith('# HELP'))
    expect(new Set(helps).size).toBe(helps.length)
    expect(page.match(/^process_start_time_seconds/gm)).toHaveLength(1)
    // Every rank has the start time of the process.
    for (const rank of [0, 1])
      expect(
        ofEngine(readSamples(page, new Set(['process_start_time_seconds'])), rank)[0]?.labels,
      ).not.toHaveProperty('engine')
    expect(page.match(/^vllm:kv_cache_usage_perc\{.*engine="1".*\}/gm)).toHaveLength(1)
  })
})

describe('a gateway in front of them', () => {
  it('sends requests to every rank of both legs, and does not mistake a rank for a restart', async () => {
    const flags = [
      '--prefill',
      prefill.url,
      '--decode',
      decode.url,
      '--prefill-data-parallel-size',
      '2',
      '--decode-data-parallel-size',
      '3',
      '--policy',
      'round_robin',
      '--prefill-policy',
      'round_robin',
      '--health-check-interval-secs',
      '0.05',
    ]
    const gateway = await startGatewayProcess(flags)
    try {
      const before = [
        await counted(prefill, 'vllm:generation_tokens_total', 2),
        await counted(decode, 'vllm:generation_tokens_total', 3),
      ]
      const texts = new Set<string>()
      for (let n = 0; n < 12; n++) {
        const response = await generate(gateway, { max_tokens: 5 })
        expect(response.status).toBe(200)
        texts.add(((await response.json()) as { choices: { text: string }[] }).choices[0]!.text)
      }
      expect(texts.size).toBe(1)
      const after = [
        await counted(prefill, 'vllm:generation_tokens_total', 2),
        await counted(decode, 'vllm:generation_tokens_total', 3),
      ]
      expect(after.map((ranks, leg) => ranks.map((value, rank) => value - before[leg]![rank]!))).toEqual([
        [6, 6],
        [20, 20, 20],
      ])
      const metrics = await (await fetch(`${gateway.url}/metrics`)).text()
      const restarts = readSamples(metrics, new Set(['eldr_worker_restarts_total']))
      expect(restarts.map(({ value }) => value)).toEqual([0, 0, 0, 0, 0])
      const failures = sumByName(readSamples(metrics, new Set(['eldr_leg_failures_total'])))
      expect(failures.get('eldr_leg_failures_total') ?? 0).toBe(0)
    } finally {
      expect(await gateway.stop()).toBe(0)
    }
    expect([...(await prefill.leftovers()), ...(await decode.leftovers())]).toEqual([])
  })
})
