import { describe, expect, it } from 'vitest'
import { exhibitFixture, HOSTILE } from '../../test/browser/exhibit-fixture.ts'
import type { ExhibitReport } from './exhibit.ts'
import { exhibitMarkdown } from './exhibit-markdown.ts'

const report = exhibitFixture()
const only = (change: Partial<ExhibitReport['sections'][number]['exhibits'][number]>): ExhibitReport => ({
  ...report,
  sections: [{ title: 'One', exhibits: [{ ...report.sections[0]!.exhibits[0]!, ...change }] }],
})

describe('exhibitMarkdown', () => {
  it('has the texts and tables of the page, numbers aligned right', () => {
    expect(exhibitMarkdown(only({}))).toBe(`# Policies on a cluster

Policies on a cluster, in one sentence.

- **trace**: data/Policies on a cluster.safetensors, sha256 ${'8b93874a3145c5c6'.repeat(4)}
- **seeds**: 3
- **topology**: 8P16D, 24 GPUs

## One

<a id="lines"></a>

### TPOT p50 over rate

**Paper:** Up to 18 %.

**Ours:** union is 12.0 % below the best load balancer.

**By policy**

| policy | TPOT p50 | change | note |
|---|---:|---:|---|
| jsq | 8.00 ± 0.10 ms | – | as \\| it is |
| eldr | 9.00 ± 0.10 ms | +1.0 % | as \\| it is |
| union | 10.00 ± 0.10 ms | +2.0 % | as \\| it is |

Charts in the HTML report: TPOT p50 over rate.

**Why it differs:** A smaller model, and a trace of another workload.

**Conditions:** Simulated: 8P16D, profile h200-first, 3 seeds.

Every number on this page was computed.
`)
  })

  it('lists notes below the tables, escaped and one per line', () => {
    expect(exhibitMarkdown(only({ notes: ['It is *so*.', 'And\nso.'] }))).toContain(
      'TPOT p50 over rate.\n\n- It is \\*so\\*.\n- And so.\n\n**Why it differs',
    )
    expect(exhibitMarkdown(only({ notes: [] }))).toBe(exhibitMarkdown(only({})))
  })

  it('is the same, byte for byte, for the same report', () => {
    expect(exhibitMarkdown(structuredClone(report))).toBe(exhibitMarkdown(report))
  })

  it('escapes texts so that none is read as markup or breaks a table', () => {
    const text = exhibitMarkdown(
      exhibitFixture([HOSTILE, 'a\n\nb', '*x* _y_ `z` [l](u) ~~s~~ $m$ &lt; \\| band_hit'], HOSTILE),
    )
    expect(text).not.toMatch(/(?<!\\)<(?!a id="[a-z]+"><\/a>$|\/a>$)/m)
    expect(text).toContain('\\*x\\* \\_y\\_ \\`z\\` \\[l\\](u) \\~\\~s\\~\\~ \\$m\\$ \\&lt; \\\\\\| band_hit')
    for (const line of text.split('\n').filter(line => line.startsWith('|'))) {
      const columns = line.match(/(?<!\\)(?:\\\\)*\|/g)!.length - 1
      expect([4, 14]).toContain(columns)
    }
  })

  it.each(['# not a heading', '- no list', '1. no list', '+ x', '2) y'])(
    'escapes a paragraph that begins with %j',
    intro => {
      expect(exhibitMarkdown({ ...only({}), intro })).not.toContain(`\n${intro}\n`)
    },
  )

  it('writes a dash for numbers that are not finite, and leaves out missing parts', () => {
    const { paper: _, ...plain } = only({}).sections[0]!.exhibits[0]!
    const tables = [
      {
        columns: ['a', 'b'],
        rows: [
          ['x', { value: NaN, digits: 1, unit: 'ms' }],
          ['y'],
          ['z', { value: Infinity, digits: 0, signed: true as const }],
        ],
      },
      { columns: [], rows: [[]] },
    ]
    const text = exhibitMarkdown({
      ...report,
      sections: [{ title: 'One', exhibits: [{ ...plain, charts: [], tables }] }],
    })
    expect(text).toContain('| a | b |\n|---|---:|\n| x | – |\n| y |  |\n| z | – |\n')
    expect(text).not.toMatch(/Paper:|HTML report|NaN|Infinity|undefined/)
  })

  it('adds the blocks of the page below the heading and at the end of each exhibit', () => {
    const text = exhibitMarkdown(only({}), {
      before: ({ id }) => [`verdict on ${id}`],
      after: ({ id }) => [`data of ${id}`],
    })
    expect(text).toContain('### TPOT p50 over rate\n\nverdict on lines\n\n**Paper:**')
    expect(text).toContain('3 seeds.\n\ndata of lines\n')
  })

  it('leaves out an empty finding', () => {
    expect(exhibitMarkdown(only({ finding: '' }))).not.toContain('**Ours:**')
  })
})
