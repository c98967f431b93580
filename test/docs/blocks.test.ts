/** Every shell block of the documents is run, by `npm run test:docs` or by another test, or says why not. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { commandsOf, fateOf, isShell } from './markdown.ts'
import { allPages, pageAt, ROOT } from './pages.ts'

const pages = allPages().map(name => ({ name, page: pageAt(name) }))
const blocks = pages.flatMap(({ name, page }) =>
  page.blocks.map(block => ({ block, where: `${name}:${block.line}`, fate: fateOf(block) })),
)

describe('shell blocks', () => {
  it('are found', () => {
    expect(pages.length).toBeGreaterThan(20)
    expect(blocks.filter(({ fate }) => fate?.kind === 'run').length).toBeGreaterThan(20)
  })

  it('say how they are tested, or why not (test/docs/markdown.ts has the words)', () => {
    const wrong = blocks.filter(
      ({ block, fate }) =>
        isShell(block) && fate?.kind !== 'run' && fate?.kind !== 'by' && fate?.kind !== 'not',
    )
    expect(wrong.map(({ where, block }) => `${where} ${block.mark ?? 'has no comment'}`)).toEqual([])
  })

  it('that nobody runs have a reason', () => {
    const reasons = blocks.flatMap(({ fate, where }) =>
      fate?.kind === 'not' ? [{ where, reason: fate.reason }] : [],
    )
    expect(reasons.filter(({ reason }) => reason.split(/\s+/).length < 3)).toEqual([])
  })

  it('name tests that exist and run the same commands', () => {
    const wrong = blocks.flatMap(({ block, fate, where }) => {
      if (fate?.kind !== 'by') return []
      const missing = fate.tests.filter(test => !existsSync(join(ROOT, test)))
      if (missing.length > 0) return missing.map(test => `${where}: there is no ${test}`)
      const texts = fate.tests.map(test => readFileSync(join(ROOT, test), 'utf8')).join('\n')
      return commandsOf(block)
        .filter(command => !new RegExp(`\\b${command}\\b`).test(texts))
        .map(command => `${where}: ${fate.tests.join(', ')} has no ${command}`)
    })
    expect(wrong).toEqual([])
  })

  it('carry no mark that means nothing', () => {
    const marked = /^(run|not run|expect|file)\b/
    expect(
      blocks
        .filter(({ block, fate }) => fate === undefined && marked.test(block.mark ?? ''))
        .map(({ where }) => where),
    ).toEqual([])
  })
})
