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
  it('has the words and the tables of the page, numbers to the right', () => {
    expect(exhibitMarkdown(only({}))).toBe(`# Policies on a cluster

Policies on a cluster, in one sentence.

- **trace**: data/Policies on a cluster.safetensors, sha256 ${'8b93874a3145c5c6'.repeat(4)}
- **seeds**: 3
- **topology**: 8P16D, 24 GPUs

## One

<a id="lines"></a>

### TPOT p50 over rate

union is 12.0 % below the best load balancer.

**By policy**

| policy | TPOT p50 | change | note |
|---|---:|---:|---|
| jsq | 8.00 ± 0.10 ms | – | as \\| it is |
| eldr | 9.00 ± 0.10 ms | +1.0 % | as \\| it is |
| union | 10.00 ± 0.10 ms | +2.0 % | as \\| it is |

Drawn in the HTML report: TPOT p50 over rate.

**The paper:** Up to 18 %. **Why ours differs:** A smaller model, and a trace of another workload.

Source: Simulated: 8P16D, profile h200-first, 3 seeds.

Every number on this page was computed.
`)
  })

  it('lists notes below the tables, on one line each and with nothing in them markup', () => {
    expect(exhibitMarkdown(only({ notes: ['It is *so*.', 'And\nso.'] }))).toContain(
      'TPOT p50 over rate.\n\n- It is \\*so\\*.\n- And so.\n\n**The paper',
    )
    expect(exhibitMarkdown(only({ notes: [] }))).toBe(exhibitMarkdown(only({})))
  })

  it('is the same to the byte for the same report', () => {
    expect(exhibitMarkdown(structuredClone(report))).toBe(exhibitMarkdown(report))
  })

  it('lets no text be markup or break a table', () => {
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
    'begins a paragraph with %j as text',
    finding => {
      expect(exhibitMarkdown(only({ finding }))).not.toContain(`\n${finding}\n`)
    },
  )

  it('writes a dash for what is no number, and leaves out what is not there', () => {
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
    expect(text).not.toMatch(/The paper|HTML report|NaN|Infinity|undefined/)
  })
})
