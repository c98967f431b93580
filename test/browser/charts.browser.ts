/** Every chart with extreme data: labels must stay inside and must not overlap. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { barChart, type Bar } from '../../src/report/bar-chart.ts'
import { figure, grid } from '../../src/report/blocks.ts'
import { heatMap } from '../../src/report/heat-map.ts'
import { lineChart } from '../../src/report/line-chart.ts'
import type { Markup } from '../../src/report/markup.ts'
import { page } from '../../src/report/page.ts'
import { scatterPlot } from '../../src/report/scatter-plot.ts'
import { launchChromium, type Browser } from './chromium.ts'
import { PROBLEMS } from './problems.ts'

let browser: Browser
let folder: string

beforeAll(async () => {
  browser = await launchChromium()
  folder = await mkdtemp(join(tmpdir(), 'eldr-charts-'))
})
afterAll(async () => {
  await browser.close()
  await rm(folder, { recursive: true })
})

const LONG = 'A name that is still far, far too long for any chart to hold, WWWWWWWWWWWWWWWWWW'
const words = (id: string) => ({ id, title: id, description: id })
const range = (length: number) => Array.from({ length }, (_, i) => i)

function bars(id: string, values: readonly number[], more: Partial<Bar> = {}): Markup {
  const list = values.map((value, i): Bar => ({
    label: i === 0 ? LONG : `bar ${i}`,
    value,
    shown: value.toPrecision(4),
    ...more,
  }))
  return barChart({ ...words(id), axis: { label: `${LONG} (ms)` }, groups: [{ heading: LONG, bars: list }] })
}

function lines(id: string, ys: readonly (readonly number[])[]): Markup {
  return lineChart({
    ...words(id),
    x: { label: LONG, tight: true },
    y: { label: LONG },
    series: ys.map((values, group) => ({
      label: `series ${group}`,
      group,
      points: values.map((y, x) => ({
        x: x * 1e5,
        y,
        low: y - Math.abs(y) / 10,
        high: y + Math.abs(y) / 10,
      })),
      star: { index: values.length - 1, ...(group === 0 && { label: LONG }) },
    })),
    rules: [{ y: ys[0]![0]!, label: LONG }],
  })
}

const charts = [
  bars('bars-one', [0]),
  bars('bars-many', range(60)),
  bars('bars-negative', [-3, 5, -0.1], { low: -4, high: 6 }),
  bars('bars-huge', [1e6, 3.2e6, 12]),
  bars('bars-astronomic', [1e15, 3e15]),
  bars('bars-tiny', [1e-9, 3e-9]),
  lines('lines-one', [[1]]),
  lines('lines-flat', [[5, 5, 5]]),
  lines(
    'lines-twelve',
    range(12).map(s => range(30).map(x => Math.sin(x / 5 + s) * 10 ** s)),
  ),
  lines('lines-long', [range(2000)]),
  scatterPlot({
    ...words('points-one'),
    x: { label: LONG },
    y: { label: LONG },
    points: [{ x: 3, y: -2, group: 0 }],
  }),
  scatterPlot({
    ...words('points-36-groups'),
    x: { label: 'x' },
    y: { label: 'y' },
    points: range(720).map(i => ({ x: 1e6 * Math.cos(i), y: 1e-6 * Math.sin(i), group: i % 36 })),
    overlay: range(64).map(i => ({ x: (i % 3) * 1e3, y: 0, label: String(100 + i), tooltip: LONG })),
  }),
  heatMap({
    ...words('cells-few'),
    rows: [{ label: LONG, values: [1, Number.NaN, 3], note: LONG }],
    columns: ['1', '2', '3'],
    columnNoun: 'expert',
    columnAxis: LONG,
    from: 1,
    to: 3,
    fromLabel: 'mean or below',
    toLabel: '≥ 3 ×',
    format: String,
  }),
]

it.each([1200, 400])('keeps labels inside charts and separate at %i px', async width => {
  const file = join(folder, 'charts.html')
  const body = grid(
    charts.map((chart, i) =>
      figure({ title: `chart ${i}`, chart, caption: 'caption', wide: i === charts.length - 1 }),
    ),
  )
  await writeFile(
    file,
    page({ title: 'charts', description: '', version: '0', header: '', body, footer: '' }),
  )
  const tab = await browser.open(pathToFileURL(file).href, { width, height: 900, scheme: 'light' })
  expect(await tab.evaluate(PROBLEMS)).toEqual([])
  if (process.env['PICTURES'] !== undefined)
    await writeFile(join(process.env['PICTURES'], `charts ${width}.png`), await tab.picture())
  await tab.close()
})
