/** `eldr simulate --drift` */
import { execFile } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, describe, expect, it } from 'vitest'
import { POLICIES } from '../src/policy/decode-policy.ts'
import { shipped } from './data.ts'
import { temporaryFolder } from './trace-support.ts'

const cli = fileURLToPath(new URL('../dist/cli/main.js', import.meta.url))
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
const drift = (...args: string[]) => eldr('simulate', '--drift', ...args)
const SMALL = ['--rates', '300', '--seeds', '2', '--requests', '600', '--topology', '16D']

interface Result {
  readonly bound: object
  readonly seeds: readonly number[]
  readonly cells: readonly {
    readonly scenario: string
    readonly traffic: string
    readonly policy: string
    readonly p50Change?: { readonly mean: number; readonly half: number }
    readonly keepsBound?: boolean
  }[]
}

describe('eldr simulate --drift', () => {
  it('compares policies with jsq on the shipped mixes, as a table and as JSON', async () => {
    const args = ['matched,swapped', ...SMALL, '--policies', 'union']
    const { code, out, err } = await drift(...args)
    expect(err).toBe('')
    expect(code).toBe(0)
    for (const text of ['matched', 'swapped', 'jsq', 'union', 'task', 'lang', '300/s', 'bound'])
      expect(out).toContain(text)
    const result = JSON.parse((await drift(...args, '--json')).out) as Result
    expect(result).toMatchObject({ bound: { p50: 0.01, p99: 0.03 }, seeds: [0, 1], baseline: 'jsq' })
    expect(result.cells.length).toBe(2 * 2 * 2)
    for (const { policy, p50Change, keepsBound } of result.cells) {
      expect(p50Change === undefined).toBe(policy === 'jsq')
      expect(keepsBound).toBe(policy === 'jsq' ? undefined : true)
    }
  })

  it('has every policy by default, also union as a gateway runs it', async () => {
    const few = ['--rates', '50', '--seeds', '1', '--requests', '60', '--topology', '2P4D']
    const { cells } = JSON.parse((await drift('slow', ...few, '--json')).out) as Result
    expect(new Set(cells.map(({ policy }) => policy))).toEqual(new Set([...POLICIES, 'union@learnt']))
  })

  it('takes traces and scenarios of your own, and another first seed', async () => {
    writeFileSync(
      file('mine.json'),
      JSON.stringify([{ name: 'weekend', artifact: 'foreign', slowness: 1.3 }]),
    )
    const traces = [
      '--trace',
      shipped('lab16-task.evaluation'),
      '--foreign',
      shipped('lab16-lang.calibration'),
    ]
    const asked = [file('mine.json'), ...SMALL, '--seed', '5', '--policies', 'jsq,union', ...traces, '--json']
    const { out, code } = await drift(...asked)
    expect(code).toBe(0)
    const { cells, seeds } = JSON.parse(out) as Result
    expect(seeds).toEqual([5, 6])
    expect(cells.map(({ scenario, policy }) => [scenario, policy])).toEqual([
      ['weekend', 'jsq'],
      ['weekend', 'union'],
    ])
  })

  it.each([
    [['flood'], /scenario "flood", expected all, some of matched, swapped/],
    [['burst,all'], /scenario burst twice/],
    [['none.json'], /none\.json/],
    [['burst', '--artifact', 'a'], /--artifact with --drift/],
    [['burst', '--foreign', 'a'], /--foreign without --trace/],
    [['burst', '--policies', 'best'], /policy "best".*union@true.*union@learnt/s],
    [['burst', '--topology', '16'], /topology "16"/],
    [['swapped', '--trace', shipped('lab16-task.evaluation')], /scenario swapped without --foreign/],
    [['burst', '--trace', shipped('tiny6-prompts.evaluation'), '--calibration', 'none'], /none/],
  ])('refuses %j with the reason', async (args, message) => {
    const { code, err } = await drift(...args)
    expect(code).not.toBe(0)
    expect(err.replace(/\s+/g, ' ')).toMatch(message)
  })

  it.each([
    [[], /no --trace/],
    [['--trace', shipped('lab16-task.evaluation'), '--foreign', 'a'], /--foreign without --drift/],
  ])('simulate %j without it is refused', async (args, message) => {
    const { code, err } = await eldr('simulate', ...args)
    expect(code).toBe(2)
    expect(err).toMatch(message)
  })
})
