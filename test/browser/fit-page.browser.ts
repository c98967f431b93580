/**
 * The fit report in a real browser. Run with `npx vitest run --config test/browser/vitest.config.ts`; needs
 * chromium (or CHROMIUM=path). With PICTURES=folder it saves a screenshot of every page.
 */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { fitPage } from '../../src/report/fit-page.ts'
import { launchChromium, type Browser } from './chromium.ts'
import { extremeFixture, fitFixture } from './fit-fixture.ts'
import { PROBLEMS } from './problems.ts'

let browser: Browser
let folder: string

beforeAll(async () => {
  browser = await launchChromium()
  folder = await mkdtemp(join(tmpdir(), 'eldr-pages-'))
})
afterAll(async () => {
  await browser.close()
  await rm(folder, { recursive: true })
})

const hostile = fitFixture({
  domains: ['</svg><script>document.title="broken"</script>', '" onload="x', 'ok'],
})
const pages = {
  usual: fitFixture(),
  extreme: extremeFixture(),
  hostile,
  'without domains': fitFixture({ domains: [], workers: 40 }),
  'many domains': fitFixture({
    domains: Array.from({ length: 68 }, (_, i) => `language ${i}`),
    requests: 5000,
  }),
}
const views = [
  { width: 1200, height: 900, scheme: 'light' },
  { width: 1200, height: 900, scheme: 'dark' },
  { width: 400, height: 800, scheme: 'light' },
] as const

describe.each(Object.entries(pages))('the fit report, %s', (name, { summary, figures }) => {
  it.each(views)('renders without problems at $width px, $scheme', async view => {
    const file = join(folder, `${name}.html`)
    await writeFile(file, fitPage(summary, figures))
    const tab = await browser.open(pathToFileURL(file).href, view)
    expect(await tab.evaluate(PROBLEMS)).toEqual([])
    expect(await tab.evaluate('document.title')).toContain('ELDR fit')
    expect(await tab.evaluate('document.scripts.length')).toBe(0)
    const dark = (await tab.evaluate('getComputedStyle(document.body).backgroundColor')) as string
    expect(Number(/\d+/.exec(dark)![0]) < 128).toBe(view.scheme === 'dark')
    expect(tab.complaints).toEqual([])
    const pictures = process.env['PICTURES']
    if (pictures !== undefined) {
      await mkdir(pictures, { recursive: true })
      await writeFile(join(pictures, `${name} ${view.width} ${view.scheme}.png`), await tab.picture())
    }
    await tab.close()
  })
})
