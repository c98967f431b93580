import { execFile, spawn } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { writeArtifact } from '../src/fit/artifact-write.ts'
import type { Plan } from '../src/sim/plan.ts'
import { fitFile, shipped } from './data.ts'
import { temporaryFolder } from './trace-support.ts'

const cli = fileURLToPath(new URL('../dist/cli/main.js', import.meta.url))
const folder = temporaryFolder()
afterAll(() => folder.remove())
const file = (name: string) => join(folder.path, name)
const TRACE = shipped('lab16-task.evaluation')
const ARTIFACT = file('task')
/** TMPDIR of the commands. */
const scratch = file('scratch')
const env = { ...process.env, TMPDIR: scratch }

beforeAll(async () => {
  mkdirSync(scratch)
  await writeArtifact(ARTIFACT, (await fitFile(shipped('lab16-task.calibration'), { workers: 8 })).artifact)
})

function eldr(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  return new Promise(resolve => {
    execFile(process.execPath, [cli, ...args], { maxBuffer: 1 << 26, env }, (error, out, err) =>
      resolve({ code: error === null ? 0 : Number(error.code), out, err }),
    )
  })
}
const ASKED = [
  '--trace',
  TRACE,
  '--artifact',
  ARTIFACT,
  '--slo-tpot',
  '15',
  '--topology',
  '4P8D',
  '--seeds',
  '1',
  '--requests',
  '400',
]
const plan = (...more: string[]) => eldr('plan', ...ASKED, ...more)

describe('eldr plan', () => {
  it('prints the savings of each policy and the run time, and leaves no temporary file', async () => {
    const { code, out, err } = await plan('--rate', '120', '--gpu-hour', '3', '--report', file('plan.html'))
    expect(err).toBe('')
    expect(code).toBe(0)
    for (const text of [
      'Highest rate of 4P8D within the SLO',
      'p99 TPOT ≤ 15 ms',
      'Fewest decode workers for 120 requests per second',
      'Conditions for routing by experts',
      'Routing by experts pays here: with union',
      '$3.00 per hour, set by --gpu-hour',
      'times the duration of a request',
      file('plan.html'),
    ])
      expect(out).toContain(text)
    expect(out).not.toMatch(/NaN|undefined/)
    const page = readFileSync(file('plan.html'), 'utf8')
    for (const text of [
      'id="highest-rate"',
      'id="fewest-decode-workers"',
      'id="conditions"',
      'SLO 15 ms',
      'Routing by experts pays here',
    ])
      expect(page).toContain(text)
    expect(page).not.toMatch(/NaN|undefined/)
    expect(readdirSync(scratch)).toEqual([])
  })

  it('prints the same as JSON, and nothing but JSON; an artifact of another size is refitted', async () => {
    const { out, err } = await plan('--json', '--topology', '6D', '--policies', 'round_robin,jsq,union', '-q')
    expect(err).toBe('')
    const made = JSON.parse(out) as Plan & { verdict: { text: string } }
    expect(made.results.map(({ variant }) => variant)).toEqual(['round_robin', 'jsq', 'union'])
    expect(made.results.map(({ isBalancer }) => isBalancer)).toEqual([true, true, false])
    expect(made).toMatchObject({
      gpus: 6,
      artifactWorkers: 8,
      pricePerGpuHour: 2.5,
      slo: { tpotMs: 15 },
      seeds: 1,
    })
    const rates = made.results.map(({ highest }) => highest.value!)
    expect(made.balancer).toBe(rates[0]! > rates[1]! ? 'round_robin' : 'jsq')
    expect(made.verdict.gain).toBeCloseTo(rates[2]! / Math.max(rates[0]!, rates[1]!) - 1, 12)
    expect(made.verdict.text).toMatch(/^Routing by experts/)
    expect(made.results[0]!.fewest).toBeUndefined()
    expect(readdirSync(scratch)).toEqual([])
  })

  it('warns if runs are too short for a steady state', async () => {
    const { out } = await plan('--requests', '20')
    expect(out).toMatch(/warning: .*too short for a steady state.* Give --requests \d+ or more/)
  })

  it('removes its temporary files when it is stopped and when it fails', async () => {
    const args = [
      'plan',
      '--trace',
      TRACE,
      '--artifact',
      ARTIFACT,
      '--slo-tpot',
      '15',
      '--topology',
      '16D',
      '--seeds',
      '50',
    ]
    const child = spawn(process.execPath, [cli, ...args], { env })
    const ended = new Promise(resolve => child.once('exit', (code, signal) => resolve(signal ?? code)))
    // The refit exists: the search has begun.
    while (
      child.exitCode === null &&
      !readdirSync(scratch, { recursive: true }).some(name =>
        String(name).endsWith('16.artifact.safetensors'),
      )
    )
      await new Promise(setImmediate)
    child.kill('SIGINT')
    expect(await ended).toBe('SIGINT')
    expect(readdirSync(scratch)).toEqual([])

    const { code, err } = await plan('--trace', shipped('tiny6-long-task.evaluation'))
    expect([code, err]).toEqual([1, expect.stringContaining('[ELDR_FIT_BAD_OPTION]')])
    expect(readdirSync(scratch)).toEqual([])
  })

  it.each([
    [['--policies', 'jsq,lru'], /one of random, round_robin/],
    [
      ['--policies', 'jsq,random'],
      /at least one policy that is not a load balancer.*Add eldr or union\. \[ELDR_USAGE\]/,
    ],
    [
      ['--policies', 'eldr,union'],
      /at least one load balancer \(random, round_robin, jsq, power_of_two\) to compare with.*Add jsq\. \[ELDR_USAGE\]/,
    ],
    [['--policies', 'jsq,jsq'], /list of names without duplicates/],
    [['--topology', '8Q'], /such as 8P16D/],
    [['--topology', '8D', '--slo-ttft', '500'], /--slo-ttft with 8D, which has no prefill.*\[ELDR_USAGE\]/],
    [['--slo-tpot', '0'], /number above 0/],
    [['--slo-tpot', 'fast'], /number above 0/],
    [['--rate', '-5'], /number above 0/],
    [['--gpu-hour', '0'], /number above 0/],
    [['--seeds', '0'], /whole number from 1/],
    [['--requests', '3'], /whole number from 10/],
    [['--report', ARTIFACT], /a separate file for each output/],
    [['--rates', '3'], /unknown option/],
  ])('rejects wrong usage with exit code 2 and says what is expected: %j', async (args, message) => {
    const { code, out, err } = await plan(...args)
    expect(err.replaceAll(/\s+/g, ' ')).toMatch(message)
    expect([code, out]).toEqual([2, ''])
  })

  it.each([
    [['--trace', shipped('lab16-task.calibration')], 'ELDR_TENSOR_MISSING'],
    [['--artifact', TRACE], 'ELDR_FILE_WRONG_KIND'],
    [['--profile', 'abacus'], 'ELDR_FILE_UNREADABLE'],
    [['--topology', '501D'], 'ELDR_TRACE_TOO_SMALL'],
    [['--report', join(folder.path, 'no', 'folder.html')], 'ELDR_FILE_UNWRITABLE'],
  ])('reports a failure with exit code 1 and a coded line, without a stack: %j', async (args, errorCode) => {
    const { code, out, err } = await plan(...args)
    expect(err).toContain(`[${errorCode}]`)
    expect(err).not.toMatch(/\n\s+at /)
    expect([code, out]).toEqual([1, ''])
  })

  it('needs an SLO, and an artifact for eldr', async () => {
    const without = await eldr('plan', '--trace', TRACE, '--artifact', ARTIFACT)
    expect([without.code, without.err]).toEqual([2, expect.stringContaining('--slo-tpot')])
    const bare = await eldr('plan', '--trace', TRACE, '--slo-tpot', '15', '--requests', '50')
    expect([bare.code, bare.err]).toEqual([2, expect.stringContaining('an artifact with centroids')])
  })
})
