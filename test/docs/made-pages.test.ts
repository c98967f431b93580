/** Generated pages and figures are up to date. */
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { cliPage } from '../../src/cli/cli-page.ts'
import { createProgram } from '../../src/cli/run.ts'
import { ROOT } from './pages.ts'

describe('the command reference', () => {
  const page = cliPage(createProgram())

  it('is up to date (otherwise run `npm run build && npm run docs`)', () => {
    expect(readFileSync(join(ROOT, 'docs', 'reference', 'cli.md'), 'utf8')).toBe(page)
  })

  it('lists every command with its options, defaults and choices', () => {
    for (const command of ['up', 'fit', 'trace import', 'config check', 'serve', 'bench'])
      expect(page).toContain(`\n## eldr ${command}\n`)
    expect(page).toContain(
      '| `--role <role>` | which requests it serves; one of `prefill`, `decode`, `both` | `both` |',
    )
    expect(page).toContain('| `--trace <file>` | evaluation trace with decode_expert_ids; required |  |')
    expect(page).not.toMatch(/undefined|\[object/)
  })
})

describe('figures', () => {
  it('are up to date (otherwise run `npm run build && node scripts/figures.mjs`)', () => {
    expect(() =>
      execFileSync(process.execPath, [join(ROOT, 'scripts', 'figures.mjs'), '--check'], { stdio: 'pipe' }),
    ).not.toThrow()
  })
})
