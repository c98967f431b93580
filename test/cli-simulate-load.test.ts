/** `eldr simulate` of what `eldr bench` sends, on workers that share a GPU. */
import { execFile } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, describe, expect, it } from 'vitest'
import { shipped } from './data.ts'
import { temporaryFolder } from './trace-support.ts'

const cli = fileURLToPath(new URL('../dist/cli/main.js', import.meta.url))
const HELD_OUT = fileURLToPath(new URL('../data/prompts/held-out.jsonl', import.meta.url))
const TRACE = shipped('tiny6-prompts.evaluation')
const folder = temporaryFolder()
afterAll(() => folder.remove())
const file = (name: string) => join(folder.path, name)

function eldr(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  return new Promise(resolve => {
    execFile(process.execPath, [cli, ...args], { maxBuffer: 1 << 26 }, (error, out, err) =>
      resolve({ code: error === null ? 0 : Number(error.code), out, err }),
    )
  })
}

const prompts = readFileSync(HELD_OUT, 'utf8')
  .trim()
  .split('\n')
  .map(line => (JSON.parse(line) as { prompt: string }).prompt)
const writeLoad = (name: string, lines: readonly object[]) => {
  writeFileSync(file(name), lines.map(line => `${JSON.stringify(line)}\n`).join(''))
  return file(name)
}
const load = writeLoad(
  'load.jsonl',
  prompts.slice(0, 40).map((prompt, i) => ({ id: `p${i}`, prompt, max_tokens: 40 + (i % 5) })),
)
const ASKED = ['simulate', '--trace', TRACE, '--policies', 'round_robin,jsq,union', '--rates', '20', '-q']
const LOAD = ['--prompts', load, '--recorded-prompts', HELD_OUT, '--duration', '5', '--warmup-seconds', '1']
const SEEDS = ['--seed', '11', '--seeds', '2']

interface Simulated {
  readonly gpus: number
  readonly load: object
  readonly points: readonly {
    readonly variant: string
    readonly runs: readonly {
      readonly seed: number
      readonly requests: number
      readonly allRequests: number
      readonly tpotMs: { readonly p50: number }
    }[]
  }[]
}

async function simulated(...more: string[]): Promise<Simulated> {
  const { code, out, err } = await eldr(...ASKED, ...LOAD, ...SEEDS, '--json', ...more)
  expect(err).toBe('')
  expect(code).toBe(0)
  return JSON.parse(out) as Simulated
}

describe('eldr simulate --prompts', () => {
  it('simulates the requests of a load file, seed by seed, with the same ones for every policy', async () => {
    const { points, load: about, gpus } = await simulated('--topology', '4D/4')
    expect(gpus).toBe(1)
    expect(about).toEqual({
      prompts: [{ file: load, prompts: 40 }],
      firstSeed: 11,
      warmUpSeconds: 1,
      seconds: 5,
    })
    const [first, ...others] = points.map(({ runs }) =>
      runs.map(({ seed, requests, allRequests }) => ({ seed, requests, allRequests })),
    )
    for (const other of others) expect(other).toEqual(first)
    expect(first!.map(({ seed }) => seed)).toEqual([11, 12])
    for (const { requests, allRequests } of first!) {
      expect(allRequests).toBeGreaterThan(80)
      expect(requests).toBeLessThan(allRequests)
    }
  })

  it('is slower on a shared GPU than on GPUs of their own', async () => {
    const tpot = ({ points }: Simulated) => points[1]!.runs[0]!.tpotMs.p50
    expect(tpot(await simulated('--topology', '4D/4'))).toBeGreaterThan(
      1.5 * tpot(await simulated('--topology', '4D')),
    )
  })

  it('names its files in the table', async () => {
    const { out } = await eldr(...ASKED, ...LOAD, '--topology', '4D/4')
    expect(out.replace(/\s+/g, ' ')).toContain('poisson arrivals for 6 s')
  })

  const unknown = writeLoad('unknown.jsonl', [{ prompt: 'not recorded', max_tokens: 4 }])
  const unlimited = writeLoad('unlimited.jsonl', [{ prompt: prompts[0] }])
  const part = writeLoad('part.jsonl', [{ prompt: prompts[0] }])
  it.each([
    [['--prompts', load], /--recorded-prompts and --duration with it/],
    [['--duration', '5'], /--duration without --prompts/],
    [[...LOAD, '--workload', 'w.csv'], /--prompts and --workload/],
    [[...LOAD, '--prompts', unknown], /a prompt that was not recorded in line 1/],
    [[...LOAD, '--prompts', unlimited], /no max_tokens in line 1/],
    [[...LOAD, '--recorded-prompts', part], /1 prompts in .* for 148 requests/],
  ])('refuses %j with the reason', async (flags, message) => {
    const { code, err } = await eldr(...ASKED, ...flags)
    expect(code).not.toBe(0)
    expect(err).toMatch(message)
  })
})

describe('a topology whose workers share GPUs', () => {
  it('is not for plans, whose bounds assume that they do not', async () => {
    const { code, err } = await eldr('plan', '--trace', TRACE, '--slo-tpot', '15', '--topology', '1P4D/4')
    expect(code).not.toBe(0)
    expect(err).toMatch(/Use 1P4D; eldr simulate supports shared GPUs/)
  })
})
