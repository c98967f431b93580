/**
 * Failures at each stage of a request, with real processes: clients that leave, workers that die, leases that
 * expire, a full KV cache.
 */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { SMALL_CONFIG, smallTensors, writeSmallModel } from '../tiny-support.ts'
import { temporaryFolder } from '../trace-support.ts'
import {
  killAll,
  leftovers,
  polled,
  startSteppedWorker,
  startWorkerProcess,
  type WorkerProcess,
} from './processes.ts'

const ASK = { do_remote_decode: true, do_remote_prefill: false }
/** Steps of seconds leave time to act during them. */
const SLOW = ['--speed', '0.005']
/** A step of about a tenth of a second: many of them take long. */
const STEADY = ['--speed', '0.05']
/** A lease that ends only when the test skips time, and the interval of its heartbeats. */
const [LEASE_MS, BEAT_MS] = [66_000, 11_000]

/** The same faults for a worker that replays a trace and one that computes a model, in the profile’s time. */
let common: readonly string[] = []
const folder = temporaryFolder()
const BACK_ENDS: readonly (readonly [string, () => Promise<readonly string[]>])[] = [
  ['replay', async () => []],
  [
    'tiny',
    async () => [
      '--backend',
      'tiny',
      '--pace',
      'h200-first',
      '--model',
      await writeSmallModel(folder.path, smallTensors(), { ...SMALL_CONFIG, max_position_embeddings: 4_096 }),
    ],
  ],
]
const start = (...flags: string[]) => startWorkerProcess(...common, ...flags)
const startStepped = (...flags: string[]) => startSteppedWorker(...common, ...flags)

afterEach(killAll)
afterAll(() => folder.remove())

const words = (count: number, seed = 0) =>
  Array.from({ length: count }, (_, i) => 300 + ((i * 7 + seed * 13) % 500))
const pair = (prefillFlags: readonly string[], decodeFlags: readonly string[]) =>
  Promise.all([start('--role', 'prefill', ...prefillFlags), start('--role', 'decode', ...decodeFlags)])

async function handoffOf(prefill: WorkerProcess, body: object): Promise<object> {
  const answer = await prefill.post('/v1/completions', { ...body, max_tokens: 1, kv_transfer_params: ASK })
  const { eldr: _, ...params } = ((await answer.json()) as { kv_transfer_params: { eldr: unknown } })
    .kv_transfer_params
  return params
}

/** A request whose client can leave. `text` is what it received, or how it failed. */
function leavable(worker: WorkerProcess, body: object) {
  const gone = new AbortController()
  const answer = worker.post('/v1/completions', body, { signal: gone.signal })
  const text = answer
    .then(async response => response.text())
    .catch((error: Error) => `failed: ${error.message}`)
  return {
    answer,
    text,
    async leave() {
      gone.abort()
      await text
    },
  }
}

async function errorOf(answer: Promise<Response>) {
  const response = await answer
  return [
    response.status,
    ((await response.json()) as { error: { type: string; message: string } }).error,
  ] as const
}

describe.each(BACK_ENDS)('%s:', (backEnd, flags) => {
  beforeAll(async () => void (common = await flags()))

  describe('a client that leaves', () => {
    it('while queued frees its place at once, and the one before it continues', async () => {
      const worker = await start('--max-num-seqs', '1', ...STEADY)
      const first = leavable(worker, { prompt: words(20), max_tokens: 500, ignore_eos: true })
      await worker.until(({ stats }) => stats.running === 1)
      const second = leavable(worker, { prompt: words(20, 1), max_tokens: 500, ignore_eos: true })
      await worker.until(({ stats }) => stats.waiting === 1)
      await second.leave()
      await worker.until(({ stats }) => stats.waiting === 0 && stats.running === 1)
      await first.leave()
      expect(await leftovers(worker)).toEqual([])
    })

    it('during prefill frees its blocks', async () => {
      const worker = await start('--role', 'prefill', '--max-num-batched-tokens', '64', ...SLOW)
      const request = leavable(worker, { prompt: words(2_000), max_tokens: 1, kv_transfer_params: ASK })
      await worker.until(({ stats }) => stats.running === 1 && stats.blocksFree < stats.blocks)
      await request.leave()
      expect(await leftovers(worker)).toEqual([])
    })

    it('between the legs has its blocks freed by a decode leg that is aborted before it reads', async () => {
      const [prefill, decode] = await pair(['--speed', '4'], ['--max-num-seqs', '1', ...STEADY])
      const busy = leavable(decode, { prompt: words(20, 8), max_tokens: 500, ignore_eos: true, stream: true })
      await decode.until(({ stats }) => stats.running === 1)
      const body = { prompt: words(60), max_tokens: 10 }
      const params = await handoffOf(prefill, body)
      await prefill.until(({ leases }) => leases === 1)
      const request = leavable(decode, { ...body, kv_transfer_params: params, stream: true })
      await decode.until(({ stats }) => stats.waiting === 1)
      await request.leave()
      await prefill.until(({ leases }) => leases === 0)
      await busy.leave()
      expect(await leftovers(prefill, decode)).toEqual([])
    })

    it('during decode frees everything on both workers', async () => {
      const [prefill, decode] = await pair(['--speed', '4'], STEADY)
      const body = { prompt: words(60), max_tokens: 500, ignore_eos: true, stream: true }
      const request = leavable(decode, {
        ...body,
        kv_transfer_params: await handoffOf(prefill, { prompt: body.prompt }),
      })
      await decode.until(({ stats }) => stats.generationTokens >= 2)
      await request.leave()
      expect(await leftovers(prefill, decode)).toEqual([])
      expect((await decode.state()).stats.finished).toMatchObject({ aborted: 1 })
    })
  })

  describe('a worker that dies', () => {
    it('between the legs, with the blocks, makes the decode leg fail with a clear error', async () => {
      const [prefill, decode] = await pair([], [])
      const body = { prompt: words(60), max_tokens: 10 }
      const params = await handoffOf(prefill, body)
      await prefill.kill()
      const [status, error] = await errorOf(
        decode.post('/v1/completions', { ...body, kv_transfer_params: params }),
      )
      expect([status, error.type]).toEqual([500, 'InternalServerError'])
      expect(error.message).toContain('could not be loaded: the prefill worker cannot be reached')
      expect(await leftovers(decode)).toEqual([])
      expect(await decode.metric('vllm:nixl_num_failed_transfers_total')).toBe(1)
    })

    it('and restarts on the same ports has no blocks for earlier hand-offs', async () => {
      const [prefill, decode] = await pair([], [])
      const body = { prompt: words(60), max_tokens: 10 }
      const params = (await handoffOf(prefill, body)) as { remote_port: number }
      await prefill.kill()
      const again = await start('--role', 'prefill', '--kv-port', String(params.remote_port))
      const [status, error] = await errorOf(
        decode.post('/v1/completions', { ...body, kv_transfer_params: params }),
      )
      expect([status, error.message]).toEqual([500, expect.stringContaining('it was restarted')])
      expect(await leftovers(again, decode)).toEqual([])
    })

    it('during prefill fails that request and nothing else', async () => {
      const [prefill, decode] = await pair(SLOW, [])
      const request = leavable(prefill, { prompt: words(2_000), max_tokens: 1, kv_transfer_params: ASK })
      await prefill.until(({ stats }) => stats.running === 1)
      await prefill.kill()
      await expect(request.answer).rejects.toThrow(/fetch failed|terminated/)
      expect(await leftovers(decode)).toEqual([])
    })

    it('while a request is queued there leaves the blocks to their lease', async () => {
      const [prefill, decode] = await pair(['--lease-ms', '1000'], ['--max-num-seqs', '1', ...STEADY])
      const busy = leavable(decode, { prompt: words(20, 8), max_tokens: 500, ignore_eos: true })
      await decode.until(({ stats }) => stats.running === 1)
      const body = { prompt: words(60), max_tokens: 10 }
      const request = leavable(decode, { ...body, kv_transfer_params: await handoffOf(prefill, body) })
      await decode.until(({ stats }) => stats.waiting === 1)
      await decode.kill()
      await expect(request.answer).rejects.toThrow(/fetch failed|terminated/)
      await busy.leave()
      expect(await leftovers(prefill)).toEqual([])
      expect(await prefill.metric('vllm:nixl_num_kv_expired_reqs_total')).toBe(1)
    })

    it('during decode breaks the stream and leaves nothing on the other worker', async () => {
      const [prefill, decode] = await pair([], STEADY)
      const body = { prompt: words(60), max_tokens: 500, ignore_eos: true, stream: true }
      const request = leavable(decode, {
        ...body,
        kv_transfer_params: await handoffOf(prefill, { prompt: body.prompt }),
      })
      await decode.until(({ stats }) => stats.generationTokens >= 2)
      await decode.kill()
      expect(await request.text).not.toContain('[DONE]')
      expect(await leftovers(prefill)).toEqual([])
    })
  })

  describe('a lease', () => {
    it('that has expired gives an error, never text', async () => {
      const [prefill, decode] = await pair(['--lease-ms', '50'], [])
      const body = { prompt: words(60), max_tokens: 10 }
      const params = await handoffOf(prefill, body)
      await prefill.until(({ leases, stats }) => leases === 0 && stats.blocksKept === 0)
      // The blocks are reused before they are requested.
      for (let i = 0; i < 5; i++)
        await prefill.post('/v1/completions', { prompt: words(60, i + 20), max_tokens: 2 })
      const [status, error] = await errorOf(
        decode.post('/v1/completions', { ...body, kv_transfer_params: params }),
      )
      expect([status, error.message]).toEqual([500, expect.stringContaining('the lease has expired')])
      const stream = await (
        await decode.post('/v1/completions', { ...body, stream: true, kv_transfer_params: params })
      ).text()
      expect(stream).toMatch(/^data: \{"error":\{.*"code":500\}\}\n\ndata: \[DONE\]\n\n$/)
      expect(await prefill.metric('vllm:nixl_num_kv_expired_reqs_total')).toBe(1)
      expect(await leftovers(prefill, decode)).toEqual([])
    })

    it('lasts as long as its request is queued', async () => {
      const [prefill, decode] = await Promise.all([
        startStepped('--role', 'prefill', '--lease-ms', String(LEASE_MS)),
        startStepped('--role', 'decode', '--max-num-seqs', '1', ...STEADY),
      ])
      const body = { prompt: words(60), max_tokens: 2, temperature: 0 }
      const alone = (await (await prefill.post('/v1/completions', body)).json()) as { choices: unknown }
      const busy = leavable(decode, { prompt: words(20, 8), max_tokens: 500, ignore_eos: true })
      await decode.until(({ stats }) => stats.running === 1)
      const waiting = decode.post('/v1/completions', {
        ...body,
        kv_transfer_params: await handoffOf(prefill, body),
      })
      await decode.until(({ stats }) => stats.waiting === 1)
      // More than two lease durations. The next heartbeat is set when the last one has renewed the lease.
      for (let skippedMs = 0; skippedMs <= 2 * LEASE_MS; skippedMs += BEAT_MS) {
        await polled(
          () => decode.skip(0),
          delays => delays.includes(BEAT_MS),
          'a heartbeat',
        )
        await decode.skip(BEAT_MS)
        await prefill.skip(BEAT_MS)
      }
      expect(await prefill.state()).toMatchObject({ leases: 1 })
      await busy.leave()
      expect((await (await waiting).json()) as object).toMatchObject({ choices: alone.choices })
      expect(await prefill.metric('vllm:nixl_num_kv_expired_reqs_total')).toBe(0)
      expect(await leftovers(prefill, decode)).toEqual([])
    })
  })

  describe('a full KV cache', () => {
    it('makes requests wait or restart, without changing their text', async () => {
      const [small, large] = await Promise.all([
        start('--blocks', '12', '--speed', '8'),
        start('--speed', '8'),
      ])
      const bodies = Array.from({ length: 12 }, (_, i) => ({
        prompt: words(40, i),
        max_tokens: 60,
        ignore_eos: true,
        temperature: i % 2,
        seed: i,
        eldr_row: backEnd === 'replay' ? i : undefined,
      }))
      const textsOf = async (worker: WorkerProcess) =>
        Promise.all(
          bodies.map(
            async body =>
              ((await (await worker.post('/v1/completions', body)).json()) as { choices: { text: string }[] })
                .choices[0]!.text,
          ),
        )
      const [fromSmall, fromLarge] = await Promise.all([textsOf(small), textsOf(large)])
      expect(fromSmall).toEqual(fromLarge)
      expect(await small.metric('vllm:num_preemptions_total')).toBeGreaterThan(0)
      expect(await leftovers(small, large)).toEqual([])
    })

    it('of unread hand-offs delays others only until the leases expire', async () => {
      const lease = ['--lease-ms', String(LEASE_MS)]
      const prefill = await startStepped('--role', 'prefill', '--blocks', '12', '--speed', '8', ...lease)
      for (let i = 0; i < 2; i++) await handoffOf(prefill, { prompt: words(80, i) })
      expect((await prefill.state()).leases).toBe(2)
      const delayed = handoffOf(prefill, { prompt: words(80, 3) })
      await prefill.until(({ stats }) => stats.waiting === 1)
      await prefill.skip(LEASE_MS)
      expect(await delayed).toMatchObject({ do_remote_prefill: true })
      await prefill.until(({ leases }) => leases === 1)
      await prefill.skip(LEASE_MS)
      expect(await leftovers(prefill)).toEqual([])
    })

    it('refuses requests that can never fit', async () => {
      const worker = await start('--blocks', '12')
      const [status, error] = await errorOf(
        worker.post('/v1/completions', { prompt: words(190), max_tokens: 10 }),
      )
      expect([status, error.message]).toEqual([
        400,
        expect.stringContaining('maximum context length is 192 tokens'),
      ])
      expect(await leftovers(worker)).toEqual([])
    })
  })
})

describe('the command', () => {
  it('stops on SIGTERM: a running stream ends with an error, the exit code is 0', async () => {
    const worker = await startWorkerProcess(...STEADY, '--grace-ms', '50')
    const request = leavable(worker, { prompt: words(20), max_tokens: 500, ignore_eos: true, stream: true })
    await worker.until(({ stats }) => stats.generationTokens >= 1)
    const code = await worker.stop()
    expect(code).toBe(0)
    expect(await request.text).toMatch(/"message":"The worker is stopping\.".*\n\ndata: \[DONE\]\n\n$/)
  })

  it('names the port in use, and what to do', async () => {
    const worker = await startWorkerProcess()
    const { port } = new URL(worker.url)
    await expect(startWorkerProcess('--port', port)).rejects.toThrow(
      /ended with 1: .*EADDRINUSE.*ELDR_PORT_TAKEN/s,
    )
  })

  it('refuses a context that its blocks cannot hold', async () => {
    await expect(startWorkerProcess('--blocks', '4', '--max-model-len', '100')).rejects.toThrow(
      /ended with 2: .*at most 64 tokens/s,
    )
  })
})
