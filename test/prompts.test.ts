import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { parsePrompts } from '../src/load/prompt-file.ts'
import { bytePairs } from './oracles/byte-pairs.ts'
import { nearDuplicates, sharedSentences } from './prompt-overlap.ts'

interface Line {
  readonly id: string
  readonly domain: string
  readonly prompt: string
}

const TASKS = ['code', 'math', 'medical', 'legal']
const LANGUAGES = ['en', 'zh', 'ru', 'es', 'de', 'ja']
const DOMAINS = [...TASKS, ...LANGUAGES]

const textOf = (file: string) => readFileSync(new URL(`../data/prompts/${file}`, import.meta.url), 'utf8')
const linesOf = (text: string) =>
  text
    .trimEnd()
    .split('\n')
    .map(line => JSON.parse(line) as Line)
const tokensOf = bytePairs(new URL('../models/tiny6/tokenizer.json', import.meta.url))
const hashOf = ({ id }: Line) => createHash('sha256').update(id).digest('hex')
const byHash = (a: Line, b: Line) => (hashOf(a) < hashOf(b) ? -1 : 1)

const calibration = linesOf(textOf('calibration.jsonl'))
const heldOut = linesOf(textOf('held-out.jsonl'))
const all = [...calibration, ...heldOut]
const inDomain = (lines: readonly Line[], domain: string) => lines.filter(line => line.domain === domain)

describe('the shipped prompts', () => {
  it('are lines of id, domain and prompt, which the load client reads', () => {
    for (const line of all) {
      expect(Object.keys(line)).toEqual(['id', 'domain', 'prompt'])
      expect(DOMAINS).toContain(line.domain)
      expect(line.id).toMatch(new RegExp(`^${line.domain}-\\d{3}$`))
      expect(line.prompt).toBe(line.prompt.trim().normalize('NFC'))
    }
    for (const [file, lines] of Object.entries({
      'calibration.jsonl': calibration,
      'held-out.jsonl': heldOut,
    })) {
      const source = parsePrompts(file, textOf(file), 'completions', 8)
      expect(lines.map((_, index) => source.request(index).prompt)).toEqual(lines.map(({ prompt }) => prompt))
    }
  })

  it('are at least 420: 60 of each task and 30 of each language, in less than 700 KB', () => {
    expect(all.length).toBeGreaterThanOrEqual(420)
    for (const domain of DOMAINS)
      expect(inDomain(all, domain).length).toBeGreaterThanOrEqual(TASKS.includes(domain) ? 60 : 30)
    expect(Buffer.byteLength(textOf('calibration.jsonl') + textOf('held-out.jsonl'))).toBeLessThan(700_000)
  })

  it('have 60 to 400 tokens of tiny6, short and long ones in every domain, as README.md says', () => {
    const rows = DOMAINS.map(domain => {
      const lengths = inDomain(all, domain)
        .map(({ prompt }) => tokensOf(prompt).length)
        .sort((a, b) => a - b)
      const [least, middle, most] = [lengths[0]!, lengths[lengths.length >> 1]!, lengths.at(-1)!]
      expect(least).toBeGreaterThanOrEqual(60)
      expect(least).toBeLessThan(100)
      expect(most).toBeLessThanOrEqual(400)
      expect(most).toBeGreaterThan(280)
      return `| ${domain} | ${inDomain(calibration, domain).length} | ${inDomain(heldOut, domain).length} | ${least} | ${middle} | ${most} |`
    })
    expect(
      textOf('README.md')
        .split('\n')
        .filter(line => /^\| [a-z]+ \| \d/.test(line)),
    ).toEqual(rows)
  })

  it('are split by the hash of their ids alone, 30 % of every domain held out', () => {
    expect(new Set(all.map(({ id }) => id)).size).toBe(all.length)
    for (const domain of DOMAINS) {
      const ranked = inDomain(all, domain).toSorted(byHash)
      expect(inDomain(heldOut, domain)).toEqual(ranked.slice(0, Math.round(0.3 * ranked.length)))
    }
    expect(calibration).toEqual(calibration.toSorted(byHash))
    expect(heldOut).toEqual(heldOut.toSorted(byHash))
  })

  it('share no sentence', () => {
    expect(sharedSentences(all)).toEqual([])
  })

  it('have at most 5 % near-duplicates by 5-grams', () => {
    expect(nearDuplicates(all).size / all.length).toBeLessThanOrEqual(0.05)
  })
})

describe('the measure of overlap', () => {
  const line = (id: string, domain: string, prompt: string) => ({ id, domain, prompt })

  it('finds a sentence regardless of case, spaces and punctuation, and ignores short ones', () => {
    const one = line('a', 'en', 'Why not? The old bridge, he said,  is closed!')
    const two = line('b', 'de', 'Gut.\n"The old BRIDGE he said is closed". Why not?')
    expect(sharedSentences([one, two])).toEqual([['a', 'b', 'the old bridge he said is closed']])
    const three = line('c', 'zh', '你好。院子里，静得出奇麻雀挤成一团。')
    const four = line('d', 'zh', '院子里静得出奇，麻雀挤成一团！你好。')
    expect(sharedSentences([three, four])).toEqual([['c', 'd', '院子里静得出奇麻雀挤成一团']])
  })

  it('counts both of two texts that differ slightly, and no others', () => {
    const words = 'one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen'
    const near = line('b', 'en', words.replace('eight', 'acht'))
    const far = line('c', 'en', words.split(' ').toReversed().join(' '))
    expect(nearDuplicates([line('a', 'en', words), near, far])).toEqual(new Set(['a', 'b']))
    const text = '夜里下了一场大雪早晨推开门院子里静得出奇老槐树的枝条被压弯了'
    expect(nearDuplicates([line('a', 'zh', text), line('b', 'zh', text.replace('院', '园')), far])).toEqual(
      new Set(['a', 'b']),
    )
  })
})
