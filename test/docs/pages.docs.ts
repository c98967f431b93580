/**
 * Runs every block that is marked `run`, page by page. ELDR_DOCS selects pages by name, ELDR_DOCS_PRINTED
 * names a file that gets the output.
 */
import { appendFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { modeOf, type Block } from './markdown.ts'
import { allPages, pageAt, ROOT } from './pages.ts'
import { runPage } from './run-page.ts'

const TIMEOUT_MS = 180_000
const wanted = process.env['ELDR_DOCS'] ?? ''
const printedFile = process.env['ELDR_DOCS_PRINTED']
const pages = allPages()
  .filter(name => name.includes(wanted))
  .map(name => ({ name, page: pageAt(name) }))
  .filter(({ page }) => page.blocks.some(block => modeOf(block)?.kind === 'run'))

describe('the commands of each page', () => {
  it('are found', () => expect(pages.length).toBeGreaterThan(0))

  for (const { name, page } of pages)
    it(`work as ${name} says`, async () => {
      const onPrinted = (block: Block, printed: string) => {
        if (printedFile !== undefined) appendFileSync(printedFile, `=== ${name}:${block.line}\n${printed}\n`)
      }
      await expect(
        runPage({ name, page, root: ROOT, timeoutMs: TIMEOUT_MS, onPrinted }),
      ).resolves.toBeUndefined()
    })
})
