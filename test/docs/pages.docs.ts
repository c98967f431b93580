/** Every block of every page that is marked as run is run here, in the page's order. ELDR_DOCS names one page, ELDR_DOCS_PRINTED a file for what was printed. */
import { appendFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { fateOf, type Block } from './markdown.ts'
import { allPages, pageAt, ROOT } from './pages.ts'
import { runPage } from './run-page.ts'

const TIMEOUT_MS = 180_000
const wanted = process.env['ELDR_DOCS'] ?? ''
const printedFile = process.env['ELDR_DOCS_PRINTED']
const pages = allPages()
  .filter(name => name.includes(wanted))
  .map(name => ({ name, page: pageAt(name) }))
  .filter(({ page }) => page.blocks.some(block => fateOf(block)?.kind === 'run'))

describe('the commands of', () => {
  it('pages exist', () => expect(pages.length).toBeGreaterThan(0))

  for (const { name, page } of pages)
    it(`${name} do what it says`, async () => {
      const onPrinted = (block: Block, printed: string) => {
        if (printedFile !== undefined) appendFileSync(printedFile, `=== ${name}:${block.line}\n${printed}\n`)
      }
      await expect(
        runPage({ name, page, root: ROOT, timeoutMs: TIMEOUT_MS, onPrinted }),
      ).resolves.toBeUndefined()
    })
})
