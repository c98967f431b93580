/**
 * docs/evidence/results.md and its data files, from two saved reports: the whole traces and the shipped cut.
 * The page shows the whole traces, and the cut only where its verdict differs.
 */
import { basename } from 'node:path'
import type { Exhibit, ExhibitReport, ExhibitTable } from '../report/exhibit.ts'
import { exhibitCsv } from '../report/exhibit-csv.ts'
import { exhibitMarkdown, inline } from '../report/exhibit-markdown.ts'
import { isStandard, shortSource, simulatedSource } from './short-source.ts'
import { verdictOf } from './verdicts.ts'

/** Which tables the page shows (default: the first). The data file has all of them. */
const SHOWN_TABLES: Readonly<Record<string, readonly number[]>> = {
  'measured-profile': [0, 2],
  'fig-17': [],
  'fig-18': [1],
  foresight: [],
}

/** Exhibits whose finding repeats the table. */
const TABLE_ONLY = new Set([
  'against-prototype',
  'fig-7',
  'fig-14',
  'fig-16',
  'fig-18',
  'capacity',
  'measured-profile',
])
/** Columns of the first table that the page leaves out. */
const HIDDEN_COLUMNS: Readonly<Record<string, RegExp>> = { bursts: /TTFT|^requests|^batch/ }

/** Larger data files are compressed. */
const MAX_PLAIN_CHARS = 20_000

export function resultsPage(whole: ExhibitReport, cut: ExhibitReport): string {
  const originals = new Map(exhibitsOf(whole).map(exhibit => [exhibit.id, exhibit]))
  const cutExhibits = new Map(exhibitsOf(cut).map(exhibit => [exhibit.id, exhibit]))
  const files = new Map(resultsData(whole, cut).map(({ id, path }) => [id, path]))
  const body = exhibitMarkdown(
    {
      ...whole,
      title: 'Results',
      sections: whole.sections.map(section => ({ ...section, exhibits: section.exhibits.map(shortened) })),
    },
    {
      before: ({ id }) => [verdictText(originals.get(id)!)],
      after: ({ id }) => [
        ...cutBlocks(originals.get(id)!, cutExhibits.get(id)!),
        `**Data:** [${basename(files.get(id)!)}](${files.get(id)!})`,
      ],
    },
  )
  const [head = '', ...sections] = body.split(/^(?=## )/m)
  return `${head}${about(whole, cut).join('\n\n')}\n\n${sections.join('')}
\`npm run docs\` writes this page and the CSV files (large ones as \`.csv.gz\`) from \`results/whole.json.br\` and \`results/cut.json.br\` (Brotli); \`node scripts/results.mjs\` writes those.
`
}

function about(whole: ExhibitReport, cut: ExhibitReport): string[] {
  const exhibits = exhibitsOf(whole)
  const [, cutSize = ''] = /Each of (two workloads has .*? decode steps)/.exec(cut.intro) ?? []
  const standard = exhibits.flatMap(({ source }) => simulatedSource(source) ?? []).find(isStandard)!
  return [
    `The numbers below are from the *whole traces*, which are too large to ship. \`eldr reproduce\` makes the same report from a shipped *cut* of them (each of ${cutSize}), on any machine in a few minutes. This page shows the cut only where its verdict differs. Each exhibit links a CSV file with the data of all its tables, or of its charts if it has no table, for both whole traces and cut. The HTML report of \`eldr reproduce\` (\`eldr-out/results.html\`) has every table and chart.`,
    `Simulated exhibits, unless they say otherwise: ${standard.arrivals} arrivals, ${standard.rows}, ${standard.runs}; artifact count-idf with 16 clusters, fitted on the calibration trace of a mix and run on its evaluation trace. In the default profile \`h200-first\` the MoE part of a step is measured and the rest assumed. [Fig. 11 and 12 with a measured step](#measured-profile) repeats the main results with \`h200-served-qwen3-30b-a3b\`, fitted to the steps of a served engine (GPU-served).`,
    '## Verdicts',
    summary(exhibits),
  ]
}

export interface DataFile {
  readonly id: string
  /** Below docs/evidence. */
  readonly path: string
  readonly text: string
}

export function resultsData(whole: ExhibitReport, cut: ExhibitReport): DataFile[] {
  const cutExhibits = exhibitsOf(cut)
  return exhibitsOf(whole).map(exhibit => {
    const { id } = exhibit
    const text = exhibitCsv([
      { traces: 'whole', exhibit },
      ...cutExhibits.filter(other => other.id === id).map(other => ({ traces: 'cut', exhibit: other })),
    ])
    return { id, path: `results/${id}.csv${text.length > MAX_PLAIN_CHARS ? '.gz' : ''}`, text }
  })
}

const exhibitsOf = ({ sections }: ExhibitReport): Exhibit[] => sections.flatMap(({ exhibits }) => exhibits)

/** Its tables have a row per load, so the page counts the loads instead. */
const isTargets = ({ id }: Exhibit): boolean => id === 'against-prototype'

function shortened(exhibit: Exhibit): Exhibit {
  const { id, finding, source, tables, charts } = exhibit
  const shown = SHOWN_TABLES[id] ?? [0]
  return {
    ...exhibit,
    finding: TABLE_ONLY.has(id) ? '' : finding,
    source: shortSource(source),
    tables: isTargets(exhibit)
      ? [targetSummary(exhibit)]
      : tables.filter((_, at) => shown.includes(at)).map(table => withoutColumns(table, HIDDEN_COLUMNS[id])),
    charts: tables.length > 0 ? [] : charts,
  }
}

function withoutColumns(table: ExhibitTable, hidden = /^$/): ExhibitTable {
  const kept = <T>(cells: readonly T[]) => cells.filter((_, at) => !hidden.test(table.columns[at]!))
  return { ...table, columns: kept(table.columns), rows: table.rows.map(kept) }
}

/** Loads that meet each target, in place of a row per load. */
function targetSummary({ tables }: Exhibit): ExhibitTable {
  const settings = tables.slice(0, 2)
  const names = settings[0]!.columns.flatMap((value, at, all) =>
    at % 2 === 1 ? [`${value}: ${all[at + 1]!}`] : [],
  )
  return {
    title: 'Loads that meet each target',
    columns: ['target', ...settings.map(({ title }) => (title ?? '').replace(': targets', ''))],
    rows: names.map((name, target) => [
      name,
      ...settings.map(({ rows }) => {
        const met = rows.filter(row => row[2 + 2 * target] === 'met').length
        return `${met} of ${rows.length}`
      }),
    ]),
  }
}

function verdictText(exhibit: Exhibit): string {
  const { word, why, numbers = '' } = verdictOf(exhibit)
  return `**${word}.** ${inline(`${why} ${numbers}`)}`
}

function cutBlocks(whole: Exhibit, cut: Exhibit): string[] {
  const [ours, other] = [verdictOf(whole), verdictOf(cut)]
  if (ours.word === other.word && ours.why === other.why) return []
  const isSaid = isTargets(cut) || other.numbers !== undefined
  const finding = isSaid ? '' : ` ${inline(cut.finding)}`
  const verdict = verdictText(cut).replaceAll('**', '').replace(`${ours.word}. `, '')
  return [`**On the cut:** ${verdict}${finding}`]
}

function summary(exhibits: readonly Exhibit[]): string {
  const rows = exhibits.map(exhibit => {
    const { word, why } = verdictOf(exhibit)
    return `| [${inline(exhibit.title)}](#${exhibit.id}) | ${word} | ${inline(why)} |`
  })
  return ['| exhibit | verdict | why |', '|---|---|---|', ...rows].join('\n')
}
