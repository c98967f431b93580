/**
 * Compares each exhibit with the paper, by the numbers in its tables and charts. Two sets of traces agree if
 * their verdicts do.
 */
import type { Exhibit, ExhibitTable } from '../report/exhibit.ts'
import { average, listed, outOf, signedPercent, span } from './words.ts'
import { fixed } from './rounded.ts'

export interface Verdict {
  readonly word:
    | 'Reproduced'
    | 'Partly reproduced'
    | 'Not reproduced'
    | 'By construction'
    | 'Beyond the paper'
  readonly why: string
  /** Numbers behind it, which differ between traces even where the verdict is the same. */
  readonly numbers?: string
}

export function verdictOf(exhibit: Exhibit): Verdict {
  const judge = JUDGES[exhibit.id]
  if (judge === undefined) throw new RangeError(`no verdict for exhibit ${exhibit.id}`)
  return judge(exhibit)
}

/** Numbers of the first row named `row`, in the columns whose name matches. */
function numbersIn({ columns, rows }: ExhibitTable, row: string, column = /./): number[] {
  const cells = rows.find(([name]) => name === row) ?? []
  return columns.flatMap((name, at) => {
    const cell = cells[at]
    return at > 0 && column.test(name) && cell != null && typeof cell !== 'string' ? [cell.value] : []
  })
}

const columnOf = (table: ExhibitTable, column: RegExp): number[] =>
  table.rows.flatMap(([name]) => numbersIn(table, String(name), column))

const isWithin = (value: number, low: number, high: number): boolean => value >= low && value <= high
const points = (value: number): string => signedPercent(value / 100)
const loads = (some: number, all: number): string => `${outOf(some, all)} loads`

/** Mean over the loads of Fig. 11 or 12. */
function meanGain({ tables }: Exhibit, policy: string, metric: RegExp): number {
  return average(numbersIn(tables[0]!, policy, metric))
}

/** Fig. 11 and 12: the paper's ranges are means over rates, so ours are too. */
function meanChanges(exhibit: Exhibit, paper: { p50: [number, number]; p99: [number, number] }): Verdict {
  const [p50, p99] = [meanGain(exhibit, 'band', /^p50/), meanGain(exhibit, 'band', /^p99/)]
  const place = (value: number, [low, high]: [number, number]) =>
    isWithin(value, low, high) ? 'within' : value < low ? 'better than' : 'worse than'
  const [median, tail] = [place(p50, paper.p50), place(p99, paper.p99)]
  return {
    word:
      median === 'within' && tail === 'within'
        ? 'Reproduced'
        : median === 'worse than'
          ? 'Not reproduced'
          : 'Partly reproduced',
    why:
      median === tail
        ? `band’s changes of p50 and p99 TPOT are both ${median} the paper’s range.`
        : `band’s change of p50 TPOT is ${median} the paper’s range, its change of p99 is ${tail} the paper’s.`,
    numbers: `Mean change over the loads: p50 ${points(p50)}, p99 ${points(p99)}.`,
  }
}

function domainAgainstEldr({ tables: [table] }: Exhibit): string {
  const lower = (metric: RegExp) => {
    const band = numbersIn(table!, 'band', metric)
    return numbersIn(table!, 'domain', metric).map((value, at) => value < band[at]!)
  }
  const [p50, p99] = [lower(/^p50/), lower(/^p99/)]
  return `Routing by domain label has a lower p50 than band at ${loads(p50.filter(is => is).length, p50.length)} and a higher p99 at ${loads(p99.filter(is => !is).length, p99.length)}.`
}

function correlation(pairs: readonly (readonly [number, number])[]): number {
  const [x, y] = [average(pairs.map(([a]) => a)), average(pairs.map(([, b]) => b))]
  const sums = pairs.reduce(
    ([xy, xx, yy], [a, b]) => [xy + (a - x) * (b - y), xx + (a - x) ** 2, yy + (b - y) ** 2] as const,
    [0, 0, 0] as readonly [number, number, number],
  )
  return sums[0] / Math.sqrt(sums[1] * sums[2])
}

const beyond = (why: string): Verdict => ({ word: 'Beyond the paper', why })
const either = (holds: boolean, yes: Verdict, no: Verdict): Verdict => (holds ? yes : no)

const JUDGES: Readonly<Record<string, (exhibit: Exhibit) => Verdict>> = {
  'fig-1'({ charts }) {
    const shares = charts.flatMap(chart => {
      if (chart.kind !== 'heat') return []
      const strongest = chart.columns.map((_, e) => Math.max(...chart.rows.map(({ values }) => values[e]!)))
      return [strongest.filter(ratio => ratio >= 1.5).length / strongest.length]
    })
    return either(
      Math.min(...shares) > 0.5,
      { word: 'Reproduced', why: 'Most experts prefer one domain.' },
      { word: 'Not reproduced', why: 'Most experts prefer no domain.' },
    )
  },

  'fig-2'({ tables }) {
    const [ratio] = columnOf(tables[0]!, /^ratio/)
    return either(
      isWithin(ratio! / 4.7, 0.9, 1.1),
      { word: 'Reproduced', why: 'The ratio is within 10 % of the paper’s.' },
      { word: 'Partly reproduced', why: 'Time grows with active experts, by another ratio.' },
    )
  },

  'fig-3'({ charts }) {
    const found = charts.flatMap(chart =>
      chart.kind === 'points' ? [correlation(chart.groups.flatMap(group => group.points))] : [],
    )
    return either(
      Math.min(...found) >= 0.7,
      { word: 'Reproduced', why: 'The correlation is at or above the paper’s range.' },
      { word: 'Not reproduced', why: 'The correlation is below the paper’s range.' },
    )
  },

  'fig-4'({ tables }) {
    const [task, lang] = tables.map(table => columnOf(table, /^change/))
    const isFewer = [...task!, ...lang!].every(change => change < 0)
    return either(
      isFewer && Math.min(...task!) > -17,
      {
        word: 'Partly reproduced',
        why: 'Fewer experts at every batch size, but a smaller reduction than in the paper.',
      },
      { word: isFewer ? 'Reproduced' : 'Not reproduced', why: 'Compare the tables.' },
    )
  },

  'fig-5': () => ({ word: 'By construction', why: 'The mixes were sampled to the paper’s proportions.' }),

  'fig-7'({ tables }) {
    const rho = (name: string) => numbersIn(tables[0]!, name, /^mean/)[0]!
    const lead =
      Math.max(rho('count'), rho('count-idf'), rho('sqrt')) - Math.max(rho('gate-prob'), rho('gate-logit'))
    const idf = rho('count-idf') - rho('count')
    return either(
      lead > 0.035 && idf > 0.005,
      { word: 'Reproduced', why: 'Counts beat gate scores, and IDF helps.' },
      lead > 0
        ? {
            word: 'Partly reproduced',
            why: `Counts beat gate scores, but by less than in the paper${idf > 0.005 ? '' : ', and IDF does not help on average'}.`,
          }
        : { word: 'Not reproduced', why: 'Gate scores beat counts.' },
    )
  },

  'fig-8'({ charts }) {
    const gains = charts.flatMap(chart =>
      chart.kind === 'lines' ? chart.series.map(({ points: p, star }) => p[star ?? 0]!.y - p.at(-1)!.y) : [],
    )
    return either(
      gains.every(gain => isWithin(gain, 0.005, 0.032)),
      {
        word: 'Reproduced',
        why: 'A subset of the layers is better than all, by a margin within the paper’s range.',
      },
      { word: 'Partly reproduced', why: 'The margin of selected layers is outside the paper’s range.' },
    )
  },

  'fig-9'({ charts }) {
    const pure = charts.map(chart =>
      chart.kind === 'points'
        ? (chart.marks ?? []).filter(({ about }) => Number(/(\d+)\u00a0?\s?%/.exec(about)?.[1]) >= 80).length
        : 0,
    )
    return either(
      pure[0]! >= 6,
      {
        word: pure[1]! >= 6 ? 'Reproduced' : 'Partly reproduced',
        why: pure[1]! >= 6 ? 'Domains are separate.' : 'Tasks are separate, languages less so.',
      },
      { word: 'Not reproduced', why: 'Domains are not separate.' },
    )
  },

  'fig-11'(exhibit) {
    const verdict = meanChanges(exhibit, { p50: [-13.9, -7], p99: [-6, -3.4] })
    return { ...verdict, why: `${verdict.why} ${domainAgainstEldr(exhibit)}` }
  },
  'fig-12': exhibit => meanChanges(exhibit, { p50: [-10, -5.9], p99: [-6.2, 1.5] }),

  'against-prototype'({ tables }) {
    const met = tables
      .slice(0, 2)
      .flatMap(({ columns, rows }) =>
        columns.flatMap((_, at) => (at > 0 && at % 2 === 0 ? [rows.every(row => row[at] === 'met')] : [])),
      )
    return beyond(
      `Of ${met.length} targets in two settings, ${met.filter(all => all).length} are met at every load.`,
    )
  },

  'measured-profile'({ tables }) {
    const distance = [0, 2].flatMap(at =>
      ['band', 'union'].flatMap(policy => {
        const [measured, first] = [tables[at]!, tables[at + 1]!].map(table => numbersIn(table, policy))
        return measured!.map((value, n) => Math.abs(value - first![n]!))
      }),
    )
    return beyond(
      Math.max(...distance) < 3.5
        ? 'The same conclusions as with h200-first; no change moves by 3.5 points or more.'
        : `Changes move by up to ${fixed(Math.max(...distance), 1)} points.`,
    )
  },

  'fig-13'({ tables }) {
    const changes = tables.flatMap(table =>
      table.rows.map(row => {
        const [base, band] = numbersIn(table, String(row[0]))
        return band! / base! - 1
      }),
    )
    return either(
      changes.every(change => change < 0),
      {
        word: average(changes) < -0.2 ? 'Reproduced' : 'Partly reproduced',
        why: 'Fewer experts at every batch size, about half of the paper’s reduction.',
      },
      { word: 'Not reproduced', why: 'Not fewer experts at every batch size.' },
    )
  },

  'fig-14'({ tables }) {
    const differences = tables.map(table => {
      const saved = (name: string) => numbersIn(table, name, /^against mixed/)[0]!
      return Math.abs(saved('count-idf') - saved('gate-prob'))
    })
    return either(
      Math.max(...differences) < 1,
      {
        word: 'Not reproduced',
        why: 'Clusters from count-idf and from gate-prob save nearly the same number of experts, within 1 point.',
      },
      { word: 'Partly reproduced', why: 'count-idf and gate-prob differ by more than 1 point.' },
    )
  },

  'fig-15'({ tables: [table] }) {
    const changes = (name: string, metric: RegExp) => numbersIn(table!, name, metric)
    const lower = (metric: RegExp) =>
      changes('balanced', metric).filter((value, at) => value < changes('plain', metric)[at]!).length
    const [p50, p99] = [lower(/^p50/), lower(/^p99/)]
    const gains = changes('balanced', /^p99/).every(value => value < 0)
    const mixes = (count: number) => ['neither mix', 'one of the two mixes', 'both mixes'][count]!
    return {
      word: p50 + p99 === 4 ? (gains ? 'Reproduced' : 'Partly reproduced') : 'Not reproduced',
      why: `Balanced clusters have a lower p50 than plain ones on ${mixes(p50)} and a lower p99 on ${mixes(p99)}. p99 ${gains ? 'falls' : 'does not fall'} below round_robin.`,
    }
  },

  'fig-16'({ tables: [table] }) {
    const bands = table!.rows.map(([name]) => String(name))
    const lowered = bands.find(band => numbersIn(table!, band, /^p99/).every(value => value < 0))
    return {
      word: lowered === 'τ = 0.1' ? 'Reproduced' : 'Partly reproduced',
      why: `The same trade-off: a wider band lowers p99. p99 is below round_robin on both mixes from ${lowered} on; in the paper from τ = 0.1 on.`,
    }
  },

  'fig-17': () => ({
    word: 'By construction',
    why: 'The simulator cannot fail this; tests in vLLM check it.',
  }),

  'fig-18'({ tables }) {
    const gain = (at: 1 | 3) =>
      tables.map(table => numbersIn(table, 'band, placement by cluster', /^(TPOT|change)/)[at]!)
    const [p50, p99] = [gain(1), gain(3)]
    const lower = p99.filter(value => value < 0).length
    return {
      word: p50.every(value => value <= -2.7) && lower === p99.length ? 'Reproduced' : 'Partly reproduced',
      why: `The median of band with placement by cluster falls by at least the paper’s 2.7 % at ${loads(p50.filter(value => value <= -2.7).length, p50.length)}; p99 falls at ${loads(lower, p99.length)} (in the paper: at all).`,
      numbers: `p50 ${span(p50.map(value => value / 100))}, p99 ${span(p99.map(value => value / 100))}.`,
    }
  },

  'table-2'({ tables: [table] }) {
    const [p50, p99] = ['band, p50', 'band, p99'].map(row => numbersIn(table!, row))
    const grows = p50!.every((value, at) => at === 0 || value < p50![at - 1]!)
    const lower = p99!.filter(value => value < 0).length
    return {
      word: grows && lower === p99!.length ? 'Reproduced' : 'Partly reproduced',
      why: `The median gain ${grows ? 'grows with the pool' : 'does not grow from 16 to 24 decoders'}. band’s p99 falls in ${outOf(lower, p99!.length)} pools (in the paper: in all).`,
    }
  },

  bursts({ tables: [table] }) {
    const worst = Math.max(...columnOf(table!, /^union p99$/))
    return beyond(
      worst < 0
        ? 'union’s p99 TPOT is below jsq’s in every case.'
        : `union’s p99 TPOT rises by up to ${points(worst)}.`,
    )
  },

  foresight: () =>
    beyond('union reaches most of the gain with true decode patterns; a wider search adds almost nothing.'),

  capacity({ tables: [table] }) {
    const gain = (policy: string) =>
      ['task', 'lang'].map(name => numbersIn(table!, `${name}, ${policy}`, /^against/)[0]!)
    const band = gain('band')
    return beyond(
      `At equal p99, union serves more than jsq on both mixes${band.every(value => value > 0) ? ', band a few percent more' : `; band serves less on ${listed(['the task mix', 'the language mix'].filter((_, at) => band[at]! <= 0))}`}.`,
    )
  },
}
