/** Pages of exhibits in a real browser. With PICTURES=folder it saves a screenshot of every page. */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { exhibitPage } from '../../src/report/exhibit-page.ts'
import { launchChromium, type Browser } from './chromium.ts'
import { exhibitFixture, extremeExhibits, HOSTILE } from './exhibit-fixture.ts'
import { PROBLEMS } from './problems.ts'

let browser: Browser
let folder: string

beforeAll(async () => {
  browser = await launchChromium()
  folder = await mkdtemp(join(tmpdir(), 'eldr-exhibits-'))
})
afterAll(async () => {
  await browser.close()
  await rm(folder, { recursive: true })
})

const pages = {
  usual: exhibitFixture(),
  extreme: extremeExhibits(),
  hostile: exhibitFixture([HOSTILE, '" onload="x', 'ok'], HOSTILE),
  bare: exhibitFixture([]),
}
const views = [
  { width: 1200, height: 900, scheme: 'light' },
  { width: 1200, height: 900, scheme: 'dark' },
  { width: 390, height: 800, scheme: 'light' },
] as const

describe.each(Object.entries(pages))('a page of exhibits, %s', (name, report) => {
  it.each(views)('renders without problems at $width px, $scheme', async view => {
    const file = join(folder, `${name}.html`)
    await writeFile(file, exhibitPage(report, '0.1.0'))
    const tab = await browser.open(`${pathToFileURL(file).href}#wide`, view)
    expect(await tab.evaluate(PROBLEMS)).toEqual([])
    expect(await tab.evaluate('document.scripts.length')).toBe(0)
    expect(await tab.evaluate('document.querySelector(":target").id')).toBe('wide')
    const ground = (await tab.evaluate('getComputedStyle(document.body).backgroundColor')) as string
    expect(Number(/\d+/.exec(ground)![0]) < 128).toBe(view.scheme === 'dark')
    expect(tab.complaints).toEqual([])
    const pictures = process.env['PICTURES']
    if (pictures !== undefined) {
      await mkdir(pictures, { recursive: true })
      await writeFile(
        join(pictures, `exhibits ${name} ${view.width} ${view.scheme}.png`),
        await tab.picture(),
      )
    }
    await tab.close()
  })
})
