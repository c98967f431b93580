import { execFile } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { ExhibitNumber, ExhibitReport, ExhibitTable } from '../src/report/exhibit.ts'
import { resultText } from '../src/report/result-text.ts'
import { temporaryFolder } from './trace-support.ts'

const cli = fileURLToPath(new URL('../dist/cli/main.js', import.meta.url))
const folder = temporaryFolder()
afterAll(() => folder.remove())
const file = (...names: string[]) => join(folder.path, ...names)

function reproduce(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  return new Promise(resolve => {
    execFile(process.execPath, [cli, 'reproduce', ...args], { maxBuffer: 1 << 26 }, (error, out, err) =>
      resolve({ code: error === null ? 0 : Number(error.code), out, err }),
    )
  })
}

describe('eldr reproduce --quick', () => {
  let run: Awaited<ReturnType<typeof reproduce>>
  let report: ExhibitReport
  beforeAll(async () => {
    run = await reproduce('--quick', '--out', file('deep', 'out'))
    report = JSON.parse(readFileSync(file('deep', 'out', 'results.json'), 'utf8')) as ExhibitReport
  })
  const exhibit = (of: ExhibitReport, id: string) =>
    of.sections.flatMap(({ exhibits }) => exhibits).find(one => one.id === id)!
  const numberIn = (table: ExhibitTable, row: string, column: string) =>
    (table.rows.find(([name]) => name === row)![table.columns.indexOf(column)] as ExhibitNumber).value

  it('creates the folder, writes results and a page, and prints a summary without colour codes', () => {
    expect(run.code).toBe(0)
    for (const text of ['Fig. 1:', 'Fig. 11:', 'Fig. 12:', 'p99 at 35', 'union', 'results.html'])
      expect(run.out).toContain(text)
    for (const stage of ['fits', 'rates', 'runs']) expect(run.err).toContain(stage)
    expect(run.out + run.err).not.toContain(String.fromCharCode(27))
    const page = readFileSync(file('deep', 'out', 'results.html'), 'utf8')
    expect(page.match(/<svg/g)!.length).toBeGreaterThan(12)
    expect(page).not.toMatch(/(?:src|href)="http/)
    expect(existsSync(file('deep', 'out', 'artifacts', 'task.recipe.artifact.safetensors'))).toBe(true)
  })

  it('writes no folder and no time into its results', () => {
    const text = readFileSync(file('deep', 'out', 'results.json'), 'utf8')
    expect(text).not.toContain(folder.path)
    expect(text).not.toContain('data/')
    expect(text).not.toMatch(/\d\d:\d\d/)
  })

  it('gives the saved numbers of the cut: run `node scripts/results.mjs --cut` after a change that moves them', async () => {
    const url = new URL('../docs/evidence/results/cut.json.br', import.meta.url)
    const saved = JSON.parse(await resultText(url)) as ExhibitReport
    for (const id of ['fig-1', 'fig-2', 'fig-3', 'fig-4', 'fig-5', 'fig-7', 'fig-8', 'fig-9'])
      expect(exhibit(report, id)).toEqual(exhibit(saved, id))
    for (const id of ['fig-11', 'fig-12']) {
      // The first table has changes, which depend on the balancers that ran. One table per load follows; its
      // title has rate and batch.
      const loads = exhibit(report, id).tables.slice(1)
      expect(loads).toHaveLength(2)
      for (const table of loads) {
        const same = exhibit(saved, id).tables.find(({ title }) => title === table.title)!
        for (const policy of ['round_robin', 'jsq', 'band', 'eldr', 'union']) {
          for (const column of ['TPOT p50', 'TPOT p99', 'TTFT p50', 'active experts', 'batch'])
            expect(numberIn(table, policy, column)).toBe(numberIn(same, policy, column))
        }
      }
    }
  })

  // Known results of the shipped cut, with room for chance. A change outside these bounds has broken
  // something.
  it.each([
    { id: 'fig-11', band: -11, union: -12, tail: -7, apart: -7 },
    { id: 'fig-12', band: -10, union: -9, tail: -5, apart: -10 },
  ])('keeps the gains of $id within their bounds at batch 20 and 35', ({ id, band, union, tail, apart }) => {
    const [gains] = exhibit(report, id).tables as readonly [ExhibitTable]
    for (const batch of [20, 35]) {
      expect(numberIn(gains, 'band', `p50 at ${batch}`)).toBeLessThan(band)
      expect(numberIn(gains, 'union', `p50 at ${batch}`)).toBeLessThan(union)
      expect(numberIn(gains, 'union', `p99 at ${batch}`)).toBeLessThan(tail)
      expect(
        numberIn(gains, 'union', `p99 at ${batch}`) - numberIn(gains, 'band', `p99 at ${batch}`),
      ).toBeLessThan(apart)
    }
  })

  it('has batches near the targets', () => {
    for (const id of ['fig-11', 'fig-12']) {
      const [, at20, at35] = exhibit(report, id).tables
      expect(Math.abs(numberIn(at20!, 'jsq', 'batch') - 20)).toBeLessThan(1)
      expect(Math.abs(numberIn(at35!, 'jsq', 'batch') - 35)).toBeLessThan(1.75)
    }
  })
})

describe('eldr reproduce', () => {
  beforeAll(() => writeFileSync(file('taken'), ''))

  it.each([
    [['--traces', file('nowhere')], 'ELDR_FILE_UNREADABLE', 'lab16-task.calibration.safetensors'],
    [['--workloads', file('nowhere')], 'ELDR_FILE_UNREADABLE', 'azure-llm-2023-conv.csv'],
    [['--profile', 'none'], 'ELDR_FILE_UNREADABLE', 'h200-first'],
    [['--out', file('taken')], 'ELDR_FILE_UNWRITABLE', 'taken'],
  ])('reports errors before any work: %j', async (args, code, named) => {
    const failed = await reproduce('--quick', '--out', file('failed'), ...args)
    expect(failed.code).toBe(1)
    expect(failed.out).toBe('')
    expect(failed.err).toContain(`[${code}]`)
    expect(failed.err).toContain(named)
    expect(failed.err).not.toMatch(/\n\s+at /)
  })

  it.each([
    [['--seeds', '0'], /whole number from 1/],
    [['--quik'], /Did you mean --quick\?/],
  ])('exits with code 2 on wrong usage: %j', async (args, message) => {
    const { code, err } = await reproduce(...args)
    expect(err).toMatch(message)
    expect(code).toBe(2)
  })
})
