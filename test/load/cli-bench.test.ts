/** Tests `eldr bench` as a program: usage, files and tables. */
import { execFile } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { BenchResult } from '../../src/load/result.ts'
import { type FakeWorker, startFakeWorker } from '../fake-worker/index.ts'
import { type Cluster, startCluster } from '../gateway/cluster.ts'
import { writeSyntheticTrace } from '../synthetic-traces.ts'
import { temporaryFolder } from '../trace-support.ts'

const cli = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url))
const folder = temporaryFolder()
const file = (name: string) => join(folder.path, name)
const NOWHERE = 'http://127.0.0.1:9'

/** Runs the real program without the OPENAI_API_KEY of the developer. */
function bench(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  const { OPENAI_API_KEY: _key, ELDR_ADMIN_TOKEN: _token, ...env } = process.env
  return new Promise(resolve => {
    execFile(process.execPath, [cli, 'bench', ...args], { env }, (error, out, err) =>
      resolve({ code: error === null ? 0 : Number(error.code), out, err }),
    )
  })
}

let worker: FakeWorker
let cluster: Cluster
beforeAll(async () => {
  worker = await startFakeWorker({ gapMs: 2 })
  cluster = await startCluster({ prefill: 1, decode: 2, decodeOptions: { gapMs: 1 } })
  await writeSyntheticTrace(
    file('trace.safetensors'),
    { layers: 2, experts: 8, topK: 2, domains: 2, preference: 4 },
    30,
    1,
  )
})
afterAll(async () => {
  await worker.close()
  await cluster.stop()
  folder.remove()
})

describe('eldr bench', () => {
  it('measures a server, prints tables, and writes JSON that it can compare', async () => {
    const common = [
      '--url',
      worker.url,
      '--requests',
      '20',
      '--output-tokens',
      '5',
      '--prompt-tokens',
      '20',
      '--seed',
      '4',
    ]
    const open = await bench(
      ...common,
      '--rate',
      '100',
      '--warmup-requests',
      '5',
      '--slo-ttft',
      '5000',
      '--json',
      file('a.json'),
    )
    expect([open.code, open.err]).toEqual([0, ''])
    for (const words of [
      'TTFT',
      'TPOT',
      'ITL',
      'end to end',
      'p99',
      '20 of 20 requests succeeded',
      'goodput: 100.0 %',
      'planned time',
      'a.json',
    ])
      expect(open.out).toContain(words)
    const result = JSON.parse(readFileSync(file('a.json'), 'utf8')) as BenchResult
    expect(result).toMatchObject({
      format: 'eldr.bench.v1',
      requests: { sent: 25, counted: 20, ok: 20, failed: 0 },
      tokens: { from: 'usage', promptMean: 20, outputMean: 5 },
      setup: {
        load: { loop: 'open', arrivals: 'poisson', rate: 100 },
        warmUp: { requests: 5 },
        seed: 4,
        model: 'fake',
      },
      goodput: { slo: { ttftMs: 5000 }, share: 1 },
    })
    const closed = await bench(...common, '--concurrency', '4', '--json', file('b.json'), '-q')
    expect(closed.code).toBe(0)
    const compared = await bench('--compare', file('a.json'), file('b.json'))
    expect(compared.out).toMatch(
      /B \/ A[^]*TPOT p50[^]*Differences between the setups[^]*setup\.load\.loop: open → closed[^]*Warnings/,
    )
    const json = await bench('--compare', file('a.json'), file('b.json'), '--json')
    expect(JSON.parse(json.out)).toMatchObject({
      ratios: expect.arrayContaining([expect.objectContaining({ name: 'TTFT p50' })]),
    })
  })

  it('takes prompts from a file, rows from a trace, and recorded arrivals', async () => {
    writeFileSync(
      file('prompts.jsonl'),
      '{"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}\n{"prompt": "you"}\n',
    )
    const chat = await bench(
      '--url',
      worker.url,
      '--api',
      'chat',
      '--prompts',
      file('prompts.jsonl'),
      '--output-tokens',
      '5',
      '--concurrency',
      '2',
      '--requests',
      '4',
      '--json',
      '-q',
    )
    expect(JSON.parse(chat.out)).toMatchObject({
      tokens: { outputMean: 4 },
      setup: { prompts: { kind: 'file', prompts: 2 } },
    })
    const trace = await bench(
      '--url',
      worker.url,
      '--trace',
      file('trace.safetensors'),
      '--rate',
      '200',
      '--arrivals',
      'gamma',
      '--burstiness',
      '0.5',
      '--requests',
      '10',
      '--json',
      '-q',
    )
    expect(JSON.parse(trace.out)).toMatchObject({
      tokens: { outputMean: 25, promptMean: 32 },
      setup: { load: { arrivals: 'gamma', burstiness: 0.5 } },
    })
    expect(
      worker.requests
        .filter(({ isGeneration }) => isGeneration)
        .slice(-10)
        .map(({ json }) => (json as { eldr_row: number }).eldr_row)
        .toSorted((a, b) => a - b),
    ).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    writeFileSync(
      file('azure.csv'),
      'TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.0,50,4\n2023-11-16 18:17:03.5,30,6\n',
    )
    const recorded = await bench(
      '--url',
      worker.url,
      '--workload',
      file('azure.csv'),
      '--rate',
      '50',
      '--json',
      '-q',
    )
    expect(JSON.parse(recorded.out)).toMatchObject({
      requests: { ok: 2 },
      tokens: { outputMean: 5, promptMean: 40 },
    })
  })

  it('sweeps policies on a gateway and compares with the simulator', async () => {
    const args = [
      '--sweep',
      '--url',
      cluster.url,
      '--trace',
      file('trace.safetensors'),
      '--policies',
      'round_robin,jsq',
      '--rates',
      '100',
      '--requests',
      '40',
    ]
    const { code, out, err } = await bench(...args, '--json', file('sweep.json'), '-q')
    expect([code, err]).toEqual([0, ''])
    expect(out).toMatch(/100 requests per second[^]*round_robin[^]*jsq[^]*of the simulator’s/)
    const sweep = JSON.parse(readFileSync(file('sweep.json'), 'utf8')) as {
      cells: {
        policy: string
        simulated: { topology: string; requests: number }
        live: { requests: { ok: number } }
      }[]
    }
    expect(sweep.cells.map(({ policy, simulated }) => [policy, simulated.topology])).toEqual([
      ['round_robin', '1P2D'],
      ['jsq', '1P2D'],
    ])
    for (const { live, simulated } of sweep.cells) expect(live.requests.ok).toBe(simulated.requests)
    const other = await bench(...args, '--topology', '2P8D')
    expect([other.code, other.err]).toEqual([
      2,
      expect.stringMatching(/--topology 2P8D.*1P2D, the gateway’s workers/),
    ])
  })

  it.each([
    [[], /no --url/],
    [['--url', NOWHERE], /no load.*--rate 10/s],
    [['--url', NOWHERE, '--rate', '5', '--concurrency', '2'], /--concurrency with --rate/],
    [['--url', NOWHERE, '--concurrency', '2', '--arrivals', 'gamma'], /--arrivals without/],
    [['--url', NOWHERE, '--rate', '5', '--burstiness', '2'], /--burstiness without --arrivals gamma/],
    [['--url', NOWHERE, '--rate', '5', '--trace', 'x', '--prompts', 'y'], /--prompts and --trace/],
    [
      ['--url', NOWHERE, '--rate', '5', '--trace', 'x', '--prompt-tokens', '9'],
      /--prompt-tokens with --trace/,
    ],
    [
      ['--url', NOWHERE, '--rate', '5', '--prefix-groups', '2', '--prefix-tokens', '600'],
      /--prefix-tokens 600 of 512/,
    ],
    [['--url', NOWHERE, '--rate', '5', '--policies', 'jsq'], /--policies without --sweep/],
    [['--url', NOWHERE, '--sweep'], /--sweep without --trace/],
    [['--url', NOWHERE, '--sweep', '--trace', 'x', '--rate', '5'], /--rate with --sweep/],
    [['--url', NOWHERE, '--rate', '5', '--extra-body', '[]'], /JSON object/],
    [['--url', 'ftp://x', '--rate', '5'], /http or https/],
    [['--compare', 'one.json'], /1 files after --compare/],
  ])('rejects wrong usage with exit code 2 and says what is expected: %j', async (args, message) => {
    const { code, out, err } = await bench(...args)
    expect(err.replaceAll(/\s+/g, ' ')).toMatch(message)
    expect([code, out]).toEqual([2, ''])
  })

  it('fails if nothing listens, if no request succeeds, and if a file is not a result', async () => {
    expect(await bench('--url', NOWHERE, '--rate', '5')).toMatchObject({
      code: 1,
      err: expect.stringMatching(/ELDR_ENDPOINT_UNREACHABLE/),
    })
    const failed = await bench(
      '--url',
      worker.url,
      '--model',
      'other',
      '--concurrency',
      '2',
      '--requests',
      '4',
      '-q',
    )
    expect(failed.code).toBe(1)
    expect(failed.out).toMatch(/http_404\s+4\s+The model `other` does not exist/)
    expect(failed.err.replaceAll(/\s+/g, ' ')).toMatch(/all 4 requests failed.*ELDR_ENDPOINT_FAILED/)
    expect((await bench('--compare', file('trace.safetensors'), file('trace.safetensors'))).err).toMatch(
      /ELDR_FILE_WRONG_KIND/,
    )
  })
})
