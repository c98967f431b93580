/** docs/evidence/conversations.md: the page, and what it says. */
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import {
  changeOf,
  conversationsPage,
  type ConversationsStudied,
  type LiveConversations,
} from '../src/report/conversations-page.ts'

const docs = (name: string) => readFileSync(new URL(`../docs/evidence/${name}`, import.meta.url), 'utf8')
const studied = JSON.parse(docs('results/conversations.json')) as ConversationsStudied
const live = JSON.parse(docs('results/conversations-live.json')) as LiveConversations
const { rows } = studied

describe('docs/evidence/conversations.md', () => {
  it('is generated from the saved results: run `npm run build && npm run docs` if not', () => {
    expect(docs('conversations.md')).toBe(conversationsPage(studied, live))
  })

  it('covers two networks, two rates, three policies and three modes, with five seeds', () => {
    expect(rows).toHaveLength(45)
    for (const { runs } of rows) expect(runs).toHaveLength(5)
  })

  it('shows that keeping turns on their worker costs no more TPOT than the bound of harm', () => {
    for (const row of rows.filter(({ mode }) => mode === 'keep')) {
      expect(changeOf(rows, row, run => run.tpotP50Ms).mean).toBeLessThan(0.01)
      expect(changeOf(rows, row, run => run.tpotP99Ms).mean).toBeLessThan(0.03)
      expect(changeOf(rows, row, run => run.ttftP50Ms).mean).toBeLessThan(0.005)
    }
  })

  it('shows that skipping prefill shortens the time to the first token, and relieves prefill', () => {
    for (const row of rows.filter(({ mode }) => mode === 'skip')) {
      expect(changeOf(rows, row, run => run.ttftP50Ms).mean).toBeLessThan(0)
      expect(changeOf(rows, row, run => run.turns.prefilledTokens).mean).toBeLessThan(-0.05)
    }
  })

  it('has a live run of every mode without a failed request', () => {
    expect(live.runs.map(({ mode }) => mode)).toEqual(['off', 'keep', 'skip'])
    for (const { failed, counted } of live.runs) expect([failed, counted > 100]).toEqual([0, true])
    expect(live.runs[2]!.prefills).toBeLessThan(live.runs[1]!.prefills)
  })
})
