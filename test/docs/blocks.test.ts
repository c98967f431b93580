/** Every shell block in the documents is run by `npm run test:docs` or another test, or says why not. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { commandsOf, modeOf, isShell } from './markdown.ts'
import { allPages, pageAt, ROOT } from './pages.ts'

const pages = allPages().map(name => ({ name, page: pageAt(name) }))
const blocks = pages.flatMap(({ name, page }) =>
  page.blocks.map(block => ({ block, where: `${name}:${block.line}`, mode: modeOf(block) })),
)

describe('shell blocks', () => {
  it('are found', () => {
    expect(pages.length).toBeGreaterThan(20)
    expect(blocks.filter(({ mode }) => mode?.kind === 'run').length).toBeGreaterThan(20)
  })

  it('say how they are tested, or why not (test/docs/markdown.ts lists the forms)', () => {
    const wrong = blocks.filter(
      ({ block, mode }) =>
        isShell(block) && mode?.kind !== 'run' && mode?.kind !== 'by' && mode?.kind !== 'not',
    )
    expect(wrong.map(({ where, block }) => `${where} ${block.mark ?? 'has no comment'}`)).toEqual([])
  })

  it('that are not run have a reason', () => {
    const reasons = blocks.flatMap(({ mode, where }) =>
      mode?.kind === 'not' ? [{ where, reason: mode.reason }] : [],
    )
    expect(reasons.filter(({ reason }) => reason.split(/\s+/).length < 3)).toEqual([])
  })

  it('name tests that exist and run the same commands', () => {
    const wrong = blocks.flatMap(({ block, mode, where }) => {
      if (mode?.kind !== 'by') return []
      const missing = mode.tests.filter(test => !existsSync(join(ROOT, test)))
      if (missing.length > 0) return missing.map(test => `${where}: ${test} does not exist`)
      const texts = mode.tests.map(test => readFileSync(join(ROOT, test), 'utf8')).join('\n')
      return commandsOf(block)
        .filter(command => !new RegExp(`\\b${command}\\b`).test(texts))
        .map(command => `${where}: ${mode.tests.join(', ')} does not run ${command}`)
    })
    expect(wrong).toEqual([])
  })

  it('have no malformed mark', () => {
    const marked = /^(run|not run|expect|file)\b/
    expect(
      blocks
        .filter(({ block, mode }) => mode === undefined && marked.test(block.mark ?? ''))
        .map(({ where }) => where),
    ).toEqual([])
  })
})
