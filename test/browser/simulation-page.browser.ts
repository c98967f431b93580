/** Reports of `eldr simulate` in a real browser: real runs, and synthetic sweeps of other shapes. */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { exhibitPage } from '../../src/report/exhibit-page.ts'
import { simulationReport } from '../../src/report/simulation-report.ts'
import type { Simulated } from '../../src/report/simulation-tables.ts'
import { openStudy } from '../../src/sim/study-pool.ts'
import type { StudyData } from '../../src/sim/study.ts'
import { grid, sweep } from '../../src/sim/sweep.ts'
import { shipped } from '../data.ts'
import { launchChromium, type Browser } from './chromium.ts'
import { PROBLEMS } from './problems.ts'
import { sourcesFixture, sweepFixture } from './simulation-fixture.ts'

let browser: Browser
let folder: string

beforeAll(async () => {
  browser = await launchChromium()
  folder = await mkdtemp(join(tmpdir(), 'eldr-simulations-'))
})
afterAll(async () => {
  await browser.close()
  await rm(folder, { recursive: true })
})

const study: StudyData = {
  trace: shipped('lab16-task.evaluation'),
  profile: 'h200-first',
  topology: '4P8D',
  requests: 400,
  arrivals: 'poisson',
  rows: 'passes',
  slo: { tpotMs: 12 },
}

async function simulated(): Promise<Simulated> {
  const pool = openStudy(study)
  const points = await sweep({ cells: grid(['jsq', 'random', 'union'], [100, 200]), seeds: [0, 1], pool })
  return { points, study, seeds: 2, pricePerGpuHour: 2.5 }
}

const many = [
  'random',
  'round_robin',
  'jsq',
  'power_of_two',
  'domain',
  'eldr@0.123456',
  'eldr',
  'union@own',
  'union@all',
  'union@true',
  'union',
]
const pages: Readonly<Record<string, () => Simulated | Promise<Simulated>>> = {
  'of real runs': simulated,
  'at one rate': () => sweepFixture({ rates: [123.45], slo: { ttftMs: 100, tpotMs: 20 } }),
  'of one policy and seed': () =>
    sweepFixture({ policies: ['eldr'], rates: [60], seeds: 1, topology: '16D' }),
  'of many policies on many ranks': () =>
    sweepFixture({ policies: many, rates: [10, 100, 1000, 10_000, 100_000], topology: '128P256D×EP64' }),
}
const views = [
  { width: 1200, height: 900, scheme: 'light' },
  { width: 1200, height: 900, scheme: 'dark' },
  { width: 390, height: 800, scheme: 'light' },
] as const

describe.each(Object.entries(pages))('the report of a simulation, %s', (name, made) => {
  it('renders without problems at every width and in both themes', async () => {
    const file = join(folder, `${name}.html`)
    await writeFile(file, exhibitPage(simulationReport(await made(), sourcesFixture, '0.1.0'), '0.1.0'))
    for (const view of views) {
      const tab = await browser.open(pathToFileURL(file).href, view)
      expect(await tab.evaluate(PROBLEMS)).toEqual([])
      expect(await tab.evaluate('document.querySelectorAll("svg.chart").length')).toBeGreaterThan(4)
      expect(
        await tab.evaluate(
          '[...document.querySelectorAll(".contents a")].every(({ hash }) => document.querySelector(hash))',
        ),
      ).toBe(true)
      expect(tab.complaints).toEqual([])
      const pictures = process.env['PICTURES']
      if (pictures !== undefined) {
        await mkdir(pictures, { recursive: true })
        await writeFile(
          join(pictures, `simulation ${name} ${view.width} ${view.scheme}.png`),
          await tab.picture(),
        )
      }
      await tab.close()
    }
  })
})
