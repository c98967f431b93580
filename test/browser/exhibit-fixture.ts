import type { Exhibit, ExhibitChart, ExhibitReport } from '../../src/report/exhibit.ts'

export const HOSTILE = `</title></style><script>document.title="broken"</script>"'&<img src=x onerror=y> | a|b`
const LONG = 'A name that is still far, far too long for any chart to hold, WWWWWWWWWWWWWWWWWW'
const range = (length: number) => Array.from({ length }, (_, i) => i)

/** A chart of each kind, with the names given. */
export function chartsOf(names: readonly string[]): ExhibitChart[] {
  const rates = [60, 100, 150]
  const y = (at: number, rate: number) => 8 + at * 0.7 + rate * 0.02
  return [
    {
      kind: 'lines',
      title: 'TPOT p50 over rate',
      x: 'requests per second',
      y: 'TPOT p50 (ms)',
      series: names.map((label, at) => ({
        label,
        ...(at === 0 && { star: 1, dashed: true }),
        points: rates.map(rate => ({
          x: rate,
          y: y(at, rate),
          low: y(at, rate) - 0.2,
          high: y(at, rate) + 0.2,
        })),
      })),
      rules: [{ y: 10, label: 'SLO: 10 ms' }],
    },
    {
      kind: 'bars',
      title: 'Change of TPOT',
      x: 'change (%)',
      groups: rates.map(rate => ({
        heading: `${rate} requests per second`,
        bars: names.map((label, at) => ({
          label,
          value: at * 4 - 10,
          digits: 1,
          unit: '%',
          low: at * 4 - 11,
          high: at * 4 - 9,
          hollow: at === 1,
        })),
      })),
    },
    {
      kind: 'points',
      title: 'Where requests lie',
      x: 'first component',
      y: 'second component',
      diagonal: true,
      groups: names.map((label, at) => ({
        label,
        points: range(40).map(i => [Math.cos(i + at), Math.sin(i * 2) + at] as const),
      })),
      marks: [{ x: 0, y: 0, label: '7', about: 'the seventh worker' }],
    },
    {
      kind: 'heat',
      title: 'Experts of each domain',
      columnNoun: 'expert',
      columns: range(48).map(String),
      rows: names.map((label, at) => ({ label, values: range(48).map(i => (i % (at + 2)) + 0.5) })),
      from: 1,
      to: 3,
      fromLabel: 'mean or below',
      toLabel: '≥ 3 ×',
    },
  ]
}

function exhibit(
  id: string,
  charts: readonly ExhibitChart[],
  names: readonly string[],
  title = 'What policies give',
): Exhibit {
  return {
    id,
    title,
    finding: `${names.at(-1) ?? 'nothing'} is 12.0 % below the best load balancer.`,
    paper: { finding: 'Up to 18 %.', differs: 'A smaller model, and a trace of another workload.' },
    source: 'Simulated: 8P16D, profile h200-first, 3 seeds.',
    charts,
    tables: [
      {
        title: 'By policy',
        columns: ['policy', 'TPOT p50', 'change', 'note'],
        rows: names.map((name, at) => [
          name,
          { value: 8 + at, digits: 2, unit: 'ms', half: 0.1 },
          at === 0 ? null : { value: at, digits: 1, unit: '%', signed: true },
          'as | it is',
        ]),
      },
    ],
  }
}

/** A synthetic report with exhibits of all kinds; deterministic. */
export function exhibitFixture(
  names: readonly string[] = ['jsq', 'eldr', 'union'],
  words = 'Policies on a cluster',
): ExhibitReport {
  const [lines, bars, points, heat] = chartsOf(names)
  const wide = exhibit('wide', chartsOf(names), names)
  return {
    title: words,
    intro: `${words}, in one sentence.`,
    facts: [
      { term: 'trace', value: `data/${words}.safetensors, sha256 ${'8b93874a3145c5c6'.repeat(4)}` },
      { term: 'seeds', value: '3' },
      { term: 'topology', value: '8P16D, 24 GPUs' },
    ],
    sections: [
      {
        title: 'Latency',
        intro: words,
        exhibits: [exhibit('lines', [lines!], names, 'TPOT p50 over rate'), exhibit('bars', [bars!], names)],
      },
      { title: 'Alone', exhibits: [exhibit('points', [points!], names, words)] },
      {
        title: 'Together',
        exhibits: [
          exhibit('heat', [heat!], names),
          {
            ...wide,
            tables: [
              {
                columns: range(14).map(i => `column ${i}`),
                rows: names.map(name =>
                  range(14).map(i => (i === 0 ? name : { value: i * 1000, digits: 2 })),
                ),
              },
            ],
          },
        ],
      },
    ],
    footer: 'Every number on this page was computed.',
  }
}

/** More of everything than anyone has, and names that fit nowhere. */
export function extremeExhibits(): ExhibitReport {
  const names = [LONG, '法律文件和判例', 'W'.repeat(90), ...range(11).map(i => `policy number ${i}`)]
  return exhibitFixture(names, `${LONG}, ${'x'.repeat(300)}`)
}
