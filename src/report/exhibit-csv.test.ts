import { describe, expect, it } from 'vitest'
import { exhibitCsv } from './exhibit-csv.ts'
import type { Exhibit } from './exhibit.ts'

const exhibit: Exhibit = {
  id: 'x',
  title: 'Policies, compared',
  finding: '',
  source: '',
  tables: [
    {
      columns: ['policy', 'p50', 'change', 'p99', 'change', 'note'],
      rows: [
        [
          'union',
          { value: 8.5, digits: 1, half: 0.25, unit: 'ms' },
          null,
          { value: 9, digits: 0 },
          '+1',
          'a "b"',
        ],
      ],
    },
  ],
  charts: [],
}

describe('exhibitCsv', () => {
  it('has a line per number with interval and unit, and distinct names for equal columns', () => {
    expect(exhibitCsv([{ traces: 'whole', exhibit }])).toBe(
      [
        'traces,part,row,column,value,half_interval,unit',
        'whole,"Policies, compared",union,p50,8.5,0.25,ms',
        'whole,"Policies, compared",union,p99,9,,',
        'whole,"Policies, compared",union,p99 change,+1,,',
        'whole,"Policies, compared",union,note,"a ""b""",,',
        '',
      ].join('\n'),
    )
  })

  it('has the charts of an exhibit without tables', () => {
    const charts = [
      { kind: 'lines', title: 'L', x: 'x', y: 'y', series: [{ label: 's', points: [{ x: 1, y: 2 }] }] },
      {
        kind: 'bars',
        title: 'B',
        x: 'ms',
        groups: [{ bars: [{ label: 'b', value: 3, digits: 0, unit: '%' }] }],
      },
      { kind: 'points', title: 'P', x: 'x', y: 'y', groups: [{ label: 'g', points: [[4, 5]] }] },
      {
        kind: 'heat',
        title: 'H',
        columnNoun: 'expert',
        columns: ['0', '1'],
        rows: [{ label: 'code', values: [1, 1.5] }],
        from: 1,
        to: 2,
        fromLabel: '',
        toLabel: '',
      },
    ] as const satisfies Exhibit['charts']
    expect(
      exhibitCsv([{ traces: 'cut', exhibit: { ...exhibit, tables: [], charts } }])
        .split('\n')
        .slice(1),
    ).toEqual(['cut,L,s,1,2,,', 'cut,B,b,ms,3,,%', 'cut,P,g,4,5,,', 'cut,H,code,expert 0 to 1,1 1.5,,', ''])
  })
})
