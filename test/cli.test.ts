import { execFile, spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { closeSync, existsSync, mkdirSync, openSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, describe, expect, it } from 'vitest'
import { shipped } from './data.ts'
import { temporaryFolder } from './trace-support.ts'

const cli = fileURLToPath(new URL('../dist/cli/main.js', import.meta.url))
const folder = temporaryFolder()
afterAll(() => folder.remove())
const file = (name: string) => join(folder.path, name)
const TASK = shipped('lab16-task.calibration')

/** Runs the real program in its own process. */
function eldr(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  return new Promise(resolve => {
    execFile(process.execPath, [cli, ...args], { maxBuffer: 1 << 26 }, (error, out, err) =>
      resolve({ code: error === null ? 0 : Number(error.code), out, err }),
    )
  })
}
const fitArgs = (out: string, ...more: string[]) => [
  'fit',
  TASK,
  '--workers',
  '8',
  '--out',
  file(out),
  '--restarts',
  '1',
  ...more,
]

describe('eldr', () => {
  it('without a command shows help with examples', async () => {
    const { code, out } = await eldr()
    expect(code).toBe(0)
    for (const word of ['fit', 'refit', 'inspect', 'Examples:']) expect(out).toContain(word)
  })

  it('prints its version', async () => {
    const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as {
      version: string
    }
    expect((await eldr('--version')).out.trim()).toBe(version)
  })

  it.each([
    [['fitt'], /Did you mean fit\?/],
    [['fit', TASK], /--workers/],
    [['fit', TASK, '-k', '0', '-o', 'x'], /whole number from 1/],
    [['fit', TASK, '-k', '4', '-o', 'x', '--transform', 'idf'], /auto or one of count, count-idf/],
    [['fit', TASK, '-k', '4', '-o', 'x', '--layers', '5-3'], /such as 0,3,8-11/],
    [['fit', TASK, '-k', '4', '-o', 'x', '--balance', 'some'], /exact, none/],
    [['inspect'], /missing required argument/],
    [['inspect', TASK, '--jsn'], /Did you mean --json\?/],
    [['fit', TASK, '-k', '4', '-o', TASK], /a separate file for each output.*ELDR_USAGE/],
    [['fit', TASK, '-k', '4', '-o', ''], /empty output file name/],
    [
      ['fit', TASK, '-k', '4', '-o', file('x'), '--placement-out', file('y')],
      /--placement-out without --ranks/,
    ],
  ])('rejects wrong usage with exit code 2 and says what is expected: %j', async (args, message) => {
    const { code, out, err } = await eldr(...args)
    expect(err).toMatch(message)
    expect(out).toBe('')
    expect(code).toBe(2)
  })

  it.each([
    [['inspect', file('nowhere')], 'ELDR_FILE_UNREADABLE'],
    [['inspect', folder.path], 'ELDR_FILE_UNREADABLE'],
    [['inspect', cli], 'ELDR_FILE_NOT_SAFETENSORS'],
    [['refit', TASK, '-k', '4', '-o', file('x')], 'ELDR_FILE_WRONG_KIND'],
    [['fit', TASK, '-k', '501', '-o', file('x')], 'ELDR_TRACE_TOO_SMALL'],
    [['fit', TASK, '-k', '4', '-o', join(folder.path, 'no', 'folder')], 'ELDR_FILE_UNWRITABLE'],
    [['fit', TASK, '-k', '4', '-o', folder.path], 'ELDR_FILE_UNWRITABLE'],
    [['fit', TASK, '-k', '4', '-o', file('x'), '--layers', '99'], 'ELDR_FIT_BAD_OPTION'],
  ])(
    'reports a failure with exit code 1 and a coded line on stderr, without a stack: %j',
    async (args, errorCode) => {
      const { code, out, err } = await eldr(...args)
      expect(code).toBe(1)
      expect(out).toBe('')
      expect(err).toContain(`[${errorCode}]`)
      expect(err).not.toMatch(/\n\s+at /)
    },
  )
})

describe('eldr fit', () => {
  it('writes artifact, placement and report, and prints tables without colour codes into a pipe', async () => {
    const { code, out, err } = await eldr(
      ...fitArgs('a.artifact.safetensors', '--ranks', '4', '--report', file('a.html')),
    )
    expect(code).toBe(0)
    const escape = String.fromCharCode(27)
    expect(out + err).not.toContain(escape)
    for (const text of [
      '500 requests × 16 layers × 128 experts',
      'count-idf',
      'Clusters, one for each of 8',
      'medical',
      'fullest rank',
    ])
      expect(out).toContain(text)
    for (const stage of [
      'read the trace',
      'ρ by transform',
      'layer selection',
      'clusters',
      'placement',
      'write',
      'report',
    ])
      expect(err).toContain(stage)
    for (const name of ['a.artifact.safetensors', 'a.placement.safetensors', 'a.html'])
      expect(existsSync(file(name))).toBe(true)
    const page = readFileSync(file('a.html'), 'utf8')
    expect(page.match(/<svg/g)!.length).toBeGreaterThanOrEqual(5)
    expect(page).not.toMatch(/(?:src|href)="http/)
  })

  it('prints the same result as JSON, and nothing but JSON', async () => {
    const { out, err } = await eldr(...fitArgs('b.safetensors', '--json', '--quiet'))
    expect(err).toBe('')
    const result = JSON.parse(out) as {
      workers: number
      clusters: unknown[]
      transforms: { name: string; rho: number }[]
      stages: unknown[]
      files: { artifact: string }
    }
    expect(result.workers).toBe(8)
    expect(result.clusters).toHaveLength(8)
    expect(result.transforms.map(({ name }) => name)).toContain('gate-logit')
    expect(result.files.artifact).toBe(file('b.safetensors'))
  })

  it('leaves no temporary file behind, even when it is killed', async () => {
    mkdirSync(file('killed'))
    const child = spawn(process.execPath, [
      cli,
      'fit',
      TASK,
      '-k',
      '8',
      '-o',
      join(file('killed'), 'x.safetensors'),
      '--pairs',
      '120000',
    ])
    await new Promise<void>(resolve => child.stderr.once('data', () => resolve())) // the first stage is done
    child.kill('SIGINT')
    expect(await new Promise(resolve => child.once('exit', (code, signal) => resolve(signal ?? code)))).toBe(
      'SIGINT',
    )
    expect(readdirSync(file('killed'))).toEqual([])
  })

  it('exits quietly when the reader of its output closes the pipe', async () => {
    const child = spawn(process.execPath, [cli, 'inspect', TASK])
    child.stdout.once('data', () => child.stdout.destroy())
    let err = ''
    child.stderr.on('data', chunk => (err += String(chunk)))
    expect(await new Promise(resolve => child.once('exit', resolve))).toBe(0)
    expect(err).toBe('')
  })
})

describe('output that cannot be written', () => {
  it('on stderr is dropped and the work continues', async () => {
    const child = spawn(process.execPath, [cli, ...fitArgs('quiet.safetensors')])
    child.stdout.resume()
    child.stderr.once('data', () => child.stderr.destroy())
    expect(await new Promise(resolve => child.once('exit', resolve))).toBe(0)
    expect(existsSync(file('quiet.safetensors'))).toBe(true)
  })

  it.runIf(existsSync('/dev/full'))('on stdout is a coded failure', async () => {
    const full = openSync('/dev/full', 'w')
    const child = spawn(process.execPath, [cli, 'inspect', TASK], { stdio: ['ignore', full, 'pipe'] })
    let err = ''
    child.stderr!.on('data', chunk => (err += String(chunk)))
    expect(await new Promise(resolve => child.once('close', resolve))).toBe(1)
    closeSync(full)
    expect(err).toContain('[ELDR_FILE_UNWRITABLE]')
  })
})

describe('eldr refit', () => {
  it('never overwrites its input artifact with a placement', async () => {
    await eldr(...fitArgs('d.placement.safetensors'))
    for (const args of [
      ['-o', file('e.safetensors'), '--placement-out', file('d.placement.safetensors')],
      ['-o', file('d.artifact.safetensors')],
    ]) {
      const { code, err } = await eldr(
        'refit',
        file('d.placement.safetensors'),
        '-k',
        '3',
        '--ranks',
        '2',
        ...args,
      )
      expect(code).toBe(2)
      expect(err).toContain('a separate file for each output')
    }
    expect((await eldr('inspect', file('d.placement.safetensors'))).out).toContain('Artifact')
  })

  it('refits an artifact for another K, and overwrites it if asked to', async () => {
    await eldr(...fitArgs('c.safetensors'))
    const { code, out } = await eldr(
      'refit',
      file('c.safetensors'),
      '-k',
      '5',
      '-o',
      file('c.safetensors'),
      '--ranks',
      '2',
    )
    expect(code).toBe(0)
    expect(out).toContain('8 → 5 workers')
    expect(existsSync(file('c.placement.safetensors'))).toBe(true)
    const { workers } = JSON.parse((await eldr('inspect', file('c.safetensors'), '--json')).out) as {
      workers: number
    }
    expect(workers).toBe(5)
  })
})

describe('eldr simulate', () => {
  const EVALUATION = shipped('lab16-task.evaluation')
  interface Simulation {
    readonly gpus: number
    readonly points: readonly {
      readonly variant: string
      readonly costPerMillionTokens: number
      readonly runs: readonly SimulatedRun[]
    }[]
  }
  interface SimulatedRun {
    readonly allRequests: number
    readonly tokensPerSecond: number
    readonly costPerMillionTokens: number
    readonly prefixHitShare: number
    readonly fullestRankExperts: number
    readonly ttftMs: { readonly p50: number }
  }

  it('compares policies on all cores, as a table and as JSON', async () => {
    await eldr('fit', TASK, '-k', '8', '-o', file('s.safetensors'), '-q')
    const args = [
      'simulate',
      '--trace',
      EVALUATION,
      '--artifact',
      file('s.safetensors'),
      '--topology',
      '4P8D',
      '--rates',
      '200',
      '--seeds',
      '2',
      '--requests',
      '600',
    ]
    const { code, out, err } = await eldr(...args)
    expect(err).toBe('')
    expect(code).toBe(0)
    for (const text of ['200 requests per second', 'jsq', 'eldr', 'union', 'TTFT p50', 'profile h200-first'])
      expect(out).toContain(text)
    expect(out).toMatch(/^ {2}eldr: match_hit \d+ %, match_spill \d+ %$/m)
    expect(out).not.toMatch(/goodput|\$/)
    const { points, gpus } = JSON.parse((await eldr(...args, '--json')).out) as Simulation
    expect(gpus).toBe(12)
    expect(points.map(({ variant }) => variant)).toEqual(['jsq', 'eldr', 'union'])
    for (const { runs, costPerMillionTokens } of points) {
      expect(runs.map(({ allRequests }) => allRequests)).toEqual([600, 600])
      const costs = runs.map(({ tokensPerSecond }) => ((12 * 2.5) / 3600 / tokensPerSecond) * 1e6)
      runs.forEach((run, seed) => expect(run.costPerMillionTokens).toBeCloseTo(costs[seed]!, 12))
      expect(costPerMillionTokens).toBeCloseTo((costs[0]! + costs[1]!) / 2, 12)
    }
  })

  it('shows goodput and cost if asked to, and writes a report', async () => {
    const args = [
      '--topology',
      '2P4D',
      '--policies',
      'jsq,union',
      '--rates',
      '60,90',
      '--seeds',
      '2',
      '--requests',
      '200',
    ]
    const asked = [
      '--slo-tpot',
      '9',
      '--slo-ttft',
      '400',
      '--gpu-hour',
      '3',
      '--prefill-policy',
      'least_loaded',
      '--prefix-cache',
      '5000',
    ]
    const { code, out, err } = await eldr(
      'simulate',
      '--trace',
      EVALUATION,
      ...args,
      ...asked,
      '--report',
      file('sim.html'),
    )
    expect(err).toBe('')
    expect(code).toBe(0)
    for (const text of ['goodput', '$/M tokens', 'prefill by least_loaded', `report ${file('sim.html')}`])
      expect(out).toContain(text)
    expect(
      Math.max(
        ...out
          .split('\n')
          .filter(line => !line.includes(folder.path))
          .map(line => line.length),
      ),
    ).toBeLessThanOrEqual(120)
    const page = readFileSync(file('sim.html'), 'utf8')
    for (const text of [
      'TTFT ≤ 400 ms, TPOT ≤ 9 ms',
      '2P4D, 6 GPUs',
      '5,000 tokens of prefix cache',
      'Change against the best load balancer',
    ])
      expect(page).toContain(text)
    const hash = createHash('sha256').update(readFileSync(EVALUATION)).digest('hex')
    expect(page).toContain(`sha256 ${hash.slice(0, 16)}…`)
    expect(page).not.toMatch(/<script|(?:src|href)="http/)
  })

  it('shows the cost of stale views between gateways, as tables and as JSON', async () => {
    const args = [
      'staleness',
      '--trace',
      EVALUATION,
      '--topology',
      '4D',
      '--policies',
      'jsq,union,round_robin',
      '--gateways',
      '2,4',
      '--view-ages',
      '0,50,never',
      '--rate',
      '100',
      '--seeds',
      '2',
      '--requests',
      '300',
    ]
    const { code, out, err } = await eldr(...args)
    expect(err).toBe('')
    expect(code).toBe(0)
    expect(out).toMatch(/^ +1 {2}exact .* ms +– +[\d.]+ ms +– /m)
    const words = out.replace(/\s+/g, ' ') // lines may wrap anywhere
    for (const text of ['50 ms old yes', 'own only', 'anticipating', '100 requests per second', '2 seeds'])
      expect(words).toContain(text)
    const lines = out.split('\n').filter(line => !line.includes(EVALUATION))
    expect(Math.max(...lines.map(line => line.length))).toBeLessThanOrEqual(120)
    type Point = {
      readonly variant: string
      readonly gateways?: {
        readonly count: number
        readonly viewAgeMs: number | null
        readonly anticipating: boolean
      }
      readonly runs: readonly { readonly tpotMs: object }[]
    }
    const { points } = JSON.parse((await eldr(...args, '--json', '--quiet')).out) as {
      readonly points: readonly Point[]
    }
    expect(points).toHaveLength(2 * (1 + 2 * 4) + (1 + 2 * 3))
    for (const variant of ['jsq', 'union']) {
      const [exact, ...several] = points.filter(point => point.variant === variant)
      expect(exact!.gateways).toBeUndefined()
      expect(exact!.runs).toHaveLength(2)
      const atOnce = several.filter(({ gateways }) => gateways!.viewAgeMs === 0)
      expect(atOnce).toHaveLength(2)
      for (const { runs } of atOnce) expect(runs).toEqual(exact!.runs)
      expect(several.some(({ runs }) => JSON.stringify(runs) !== JSON.stringify(exact!.runs))).toBe(true)
    }
  })

  it('shows the default view ages as a user would type them', async () => {
    expect((await eldr('staleness', '--help')).out.replace(/\s+/g, ' ')).toContain(
      'or never (default: 5,20,100,never)',
    )
    const args = [
      'staleness',
      '--trace',
      EVALUATION,
      '--topology',
      '2D',
      '--policies',
      'jsq',
      '--gateways',
      '2',
      '--rate',
      '50',
      '--seeds',
      '1',
      '--requests',
      '20',
      '--json',
    ]
    expect(JSON.parse((await eldr(...args)).out)).toMatchObject({ viewAgesMs: [5, 20, 100, null] })
  })

  it.each([
    [['--gateways', '1'], /whole numbers from 2 to 1024/],
    [['--gateways', '2,2'], /different whole numbers/],
    [['--view-ages', '5,soon'], /or never/],
    [['--policies', 'jsqq'], /one of random/],
    [['--topology', '0D'], /at least 1 decode worker/],
    [['--policies', 'eldr', '--requests', '20', '--seeds', '1'], /--artifact/],
  ])('rejects invalid gateway numbers and view ages: %s', async (args, reason) => {
    const { code, err } = await eldr('staleness', '--trace', EVALUATION, ...args)
    expect(code).toBe(2)
    expect(err).toMatch(reason)
  })

  it('takes arrivals, lengths and prefixes from a recorded workload', async () => {
    const times = Array.from({ length: 60 }, (_, i) => i * 200)
    writeFileSync(
      file('calls.jsonl'),
      times
        .map(timestamp =>
          JSON.stringify({ timestamp, input_length: 2000, output_length: 30, hash_ids: [1, 2, 3] }),
        )
        .join('\n'),
    )
    writeFileSync(
      file('calls.csv'),
      `TIMESTAMP,ContextTokens,GeneratedTokens\n${times.map(ms => `2023-11-16 18:01:${(ms / 1000).toFixed(3).padStart(6, '0')},700,30`).join('\n')}\n`,
    )
    const args = [
      'simulate',
      '--trace',
      EVALUATION,
      '--topology',
      '2P4D',
      '--policies',
      'jsq',
      '--rates',
      '20',
      '--seeds',
      '1',
      '--json',
    ]
    const run = async (...more: string[]) => JSON.parse((await eldr(...args, ...more)).out) as Simulation
    const recorded = await run(
      '--workload',
      file('calls.jsonl'),
      '--prefix-cache',
      '100000',
      '--max-output',
      '20',
    )
    expect(recorded).toMatchObject({
      arrivals: 'recorded',
      workload: { file: file('calls.jsonl'), outputTokens: 20 },
    })
    expect(recorded.points[0]!.runs[0]).toMatchObject({ allRequests: 60 })
    expect(recorded.points[0]!.runs[0]!.prefixHitShare).toBeGreaterThan(0.5)
    const cut = await run('--workload', file('calls.csv'), '--max-prompt', '100')
    const whole = await run('--workload', file('calls.csv'))
    expect(cut.points[0]!.runs[0]!.ttftMs.p50).toBeLessThan(whole.points[0]!.runs[0]!.ttftMs.p50)
  })

  it('places the experts of expert-parallel decode workers', async () => {
    await eldr('fit', TASK, '-k', '4', '-o', file('p.safetensors'), '-q')
    const args = [
      'simulate',
      '--trace',
      EVALUATION,
      '--artifact',
      file('p.safetensors'),
      '--topology',
      '4D×EP4',
      '--policies',
      'eldr',
      '--rates',
      '60',
      '--seeds',
      '1',
      '--requests',
      '200',
      '--json',
    ]
    const fullest = async (placement: string) => {
      const { points } = JSON.parse((await eldr(...args, '--placement', placement)).out) as Simulation
      return points[0]!.runs[0]!.fullestRankExperts
    }
    expect(await fullest('cluster')).toBeLessThan(await fullest('linear'))
  })

  it.each([
    [['--policies', 'jsq,lru'], 2, /one of random, round_robin/],
    [['--topology', '8Q'], 2, /such as 8P16D/],
    [['--rates', '0'], 2, /rates above 0/],
    [['--rates', '50,50.0'], 2, /different rates/],
    [['--slo-tpot', '0'], 2, /a number above 0/],
    [['--slo-ttft', 'soon'], 2, /a number above 0/],
    [['--gpu-hour', '-1'], 2, /a number above 0/],
    [['--max-prompt', '0'], 2, /whole number from 1/],
    [['--placement', 'best'], 2, /linear, global, cluster/],
    [['--prefill-policy', 'best'], 2, /prefix_hash, round_robin, least_loaded/],
    [['--topology', '4D', '--slo-ttft', '100'], 2, /--slo-ttft with 4D, which has no prefill.*ELDR_USAGE/],
    [
      ['--topology', '4D', '--prefill-policy', 'round_robin'],
      2,
      /--prefill-policy with 4D, which has no prefill/,
    ],
    [['--topology', '4D', '--prefix-cache', '100'], 2, /--prefix-cache with 4D, which has no prefill/],
    [['--placement', 'linear'], 2, /--placement with 8P16D.*several ranks.*ELDR_USAGE/],
    [['--topology', '4D×EP4', '--placement', 'global'], 2, /placement global.*--artifact/],
    [['--arrivals', 'gamma', '--workload', file('w.csv')], 2, /--arrivals with --workload.*ELDR_USAGE/],
    [['--max-prompt', '100'], 2, /--max-prompt without --workload.*ELDR_USAGE/],
    [['--max-output', '100'], 2, /--max-output without --workload.*ELDR_USAGE/],
    [['--workload', file('nowhere.csv')], 1, /nowhere.csv.*ELDR_FILE_UNREADABLE/],
    [['--workload', cli], 1, /ELDR_FILE_WRONG_KIND/],
    [['--report', EVALUATION], 2, /the same path for an input and an output.*ELDR_USAGE/],
    [['--workload', file('w.csv'), '--report', file('w.csv')], 2, /the same path for an input and an output/],
    [['--report', ''], 2, /empty output file name/],
    [['--report', join(folder.path, 'no', 'folder.html')], 1, /ELDR_FILE_UNWRITABLE/],
    [['--report', file('r.html'), '--workload', file('nowhere.csv')], 1, /ELDR_FILE_UNREADABLE/],
    [['--policies', 'eldr'], 2, /an artifact with centroids/],
    [['--profile', 'abacus'], 1, /abacus/],
    [['--trace', TASK], 1, /decode_expert_ids/],
  ])('rejects %j with exit code %i and says what is expected', async (args, expected, message) => {
    const { code, err } = await eldr(
      'simulate',
      '--trace',
      EVALUATION,
      '--requests',
      '100',
      '--seeds',
      '1',
      '--rates',
      '50',
      '--policies',
      'jsq',
      ...args,
    )
    expect(err).toMatch(message)
    expect(code).toBe(expected)
  })
})

describe('eldr inspect', () => {
  it.each(['lab16-task.calibration', 'lab16-lang.evaluation', 'tiny6-long-lang.calibration'])(
    'summarises the shipped %s and what it can be used for',
    async name => {
      const { code, out } = await eldr('inspect', shipped(name))
      expect(code).toBe(0)
      expect(out).toContain('✓ make signatures')
      expect(out).toContain(name.includes('evaluation') ? '✓ replay decode steps' : '– replay decode steps')
      const json = JSON.parse((await eldr('inspect', shipped(name), '--json')).out) as {
        kind: string
        requests: number
        tensors: unknown[]
      }
      expect(json.kind).toBe('trace')
      expect(json.tensors.length).toBeGreaterThanOrEqual(5)
    },
  )

  it('prints no control characters from a file', async () => {
    const header = JSON.stringify({
      __metadata__: {
        format: 'eldr.trace.v1',
        model: 'a\u001b[31mb\u0007',
        layers: '1',
        experts: '2',
        top_k: '1',
      },
      prefill_counts: { dtype: 'U8', shape: [1, 1, 2], data_offsets: [0, 2] },
    })
    const prefix = Buffer.alloc(8)
    prefix.writeBigUInt64LE(BigInt(Buffer.byteLength(header)))
    writeFileSync(file('evil'), Buffer.concat([prefix, Buffer.from(header), Buffer.from([1, 0])]))
    const { code, out } = await eldr('inspect', file('evil'))
    expect(code).toBe(0)
    expect(out).toContain('a�[31mb�')
  })
})
