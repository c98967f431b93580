/** Documents stay short enough to read and to keep true, and quote the log as it is. */
import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { ROOT } from './pages.ts'

const MAX_HAND_WRITTEN_WORDS = 38_000
const MAX_RESULTS_WORDS = 8_000

/** Written by scripts and benchmarks. */
const GENERATED =
  /^docs\/(reference\/(cli|config|metrics|errors|api)|evidence\/(results|gpu|harm|drift|experiment|tiny|benchmarks.*))\.md$/

const words = (file: string) => readFileSync(join(ROOT, file), 'utf8').split(/\s+/).filter(Boolean).length

describe('the documents', () => {
  it('have at most 38,000 hand-written words, and the results 8,000', () => {
    const top = readdirSync(ROOT).filter(name => name.endsWith('.md'))
    const below = readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
    const pages = below.filter(name => name.endsWith('.md')).map(name => `docs/${name}`)
    const handWritten = [...top, ...pages.filter(page => !GENERATED.test(page))]
    expect(handWritten.length).toBeGreaterThan(25)
    expect(handWritten.reduce((sum, page) => sum + words(page), 0)).toBeLessThanOrEqual(
      MAX_HAND_WRITTEN_WORDS,
    )
    expect(words('docs/evidence/results.md')).toBeLessThanOrEqual(MAX_RESULTS_WORDS)
  })

  it('quote the messages of the log as the gateway writes them', () => {
    const page = readFileSync(join(ROOT, 'docs/guides/operations.md'), 'utf8')
    const rows = page.split('\n').filter(line => /^\|.*\| (info|warn|error) \|/.test(line))
    const quoted = rows.flatMap(row => {
      const [messages = ''] = row.split('|').slice(1)
      return [...messages.split(' with ')[0]!.matchAll(/`([^`]+)`/g)].map(([, message]) => message!)
    })
    expect(quoted.length).toBeGreaterThan(5)
    const sources = execFileSync('git', ['ls-files', 'src/gateway', 'src/cluster'], {
      cwd: ROOT,
      encoding: 'utf8',
    })
    const text = sources
      .split('\n')
      .filter(file => file.endsWith('.ts') && !file.endsWith('.test.ts'))
      .map(file => readFileSync(join(ROOT, file), 'utf8'))
      .join('\n')
    // `prefill failed` and `decode failed` are one template.
    const isWritten = (message: string) =>
      text.includes(`'${message}`) || text.includes(`\`${message.replace(/^(prefill|decode)/, '${leg}')}`)
    expect(quoted.filter(message => !isWritten(message))).toEqual([])
  })
})
