import type { FitSummary, PlacementSummary } from '../fit/summary.ts'
import { signatureInWords, whyChosen } from './fit-words.ts'
import { bar, type Column, sparkline, table } from './table.ts'
import { fixed, whole } from './numbers.ts'
import { printable, type Terminal, wrapped } from './terminal.ts'

type Clustered = Pick<
  FitSummary,
  'clusters' | 'workers' | 'balance' | 'meanSimilarity' | 'vanillaSizes' | 'bestSimilarity'
>

/** The result of a fit as terminal tables. */
export function fitTables(summary: FitSummary, terminal: Terminal): string {
  const { source } = summary
  const what = [source.model, source.workload]
    .filter(text => text !== undefined)
    .map(printable)
    .join(' · ')
  return [
    `${terminal.bold(what)}  ${whole(source.requests)} requests × ${source.layers} layers × ${source.experts} experts, top-${source.topK}`,
    terminal.dim(
      wrapped(
        `trace ${printable(source.file)}, sha256 ${source.sha256.slice(0, 12)}, seed ${summary.seed}, eldr ${source.version}`,
        terminal.width,
      ),
    ),
    '',
    wrapped(`${signatureInWords(summary)} ${whyChosen(summary)}`, terminal.width),
    ...(summary.transforms.length > 0 ? ['', transformTable(summary, terminal)] : []),
    ...(summary.curves.length > 0 ? ['', curveTable(summary, terminal)] : []),
    '',
    clusterTable(summary, source.domains, terminal),
    ...(summary.placement ? ['', placementTable(summary.placement, terminal)] : []),
    ...(summary.notes.length > 0
      ? [
          '',
          ...summary.notes.map(
            note => `${terminal.warn('note')} ${wrapped(printable(note), terminal.width - 5, 5)}`,
          ),
        ]
      : []),
  ].join('\n')
}

function transformTable({ transforms, chosen, source }: FitSummary, terminal: Terminal): string {
  const partial = transforms.some(({ requests }) => requests < source.requests)
  const best = Math.max(...transforms.map(({ rho }) => rho))
  const rows = transforms.map(({ name, rho, requests, pairs, servable }) => [
    name === chosen ? terminal.accent(`${name} ★`) : servable ? name : `${name} ○`,
    fixed(rho, 3),
    bar(rho / Math.max(best, 1e-9), 20),
    whole(pairs),
    ...(partial ? [whole(requests)] : []),
  ])
  const columns: Column[] = [
    { title: 'transform' },
    { title: 'ρ', align: 'right' },
    { title: '' },
    { title: 'pairs', align: 'right' },
  ]
  if (partial) columns.push({ title: 'requests', align: 'right' })
  const study = transforms.some(({ servable }) => !servable) ? ', ○ study only: no hand-off carries it' : ''
  return section(
    'Signature quality ρ, all layers',
    `paper Fig. 7; ★ chosen${study}`,
    table(columns, rows, terminal),
    terminal,
  )
}

function curveTable({ curves, source, layers }: FitSummary, terminal: Terminal): string {
  const rows = curves.map(({ transform, order, rho, peak }, at) => [
    at === 0 ? terminal.accent(`${transform} ★`) : transform,
    `${peak} of ${source.layers}`,
    fixed(rho[peak - 1], 3),
    fixed(rho.at(-1), 3),
    sparkline(rho),
    order.slice(0, Math.min(peak, 24)).join(' ') + (peak > 24 ? ' …' : ''),
  ])
  const columns: Column[] = [
    { title: 'transform' },
    { title: 'kept', align: 'right' },
    { title: 'ρ at peak', align: 'right' },
    { title: 'all layers', align: 'right' },
    { title: 'ρ by layers kept' },
    { title: 'in order of selection' },
  ]
  return section(
    `Layers kept, greedy on ρ: ${layers.length} of ${source.layers}`,
    'paper Fig. 8',
    table(columns, rows, terminal),
    terminal,
  )
}

/** A title, a remark and the table. */
function section(title: string, remark: string, body: string, terminal: Terminal): string {
  return `${wrapped(`${terminal.bold(title)} ${terminal.dim(`(${remark})`)}`, terminal.width)}\n${body}`
}

export function clusterTable(summary: Clustered, domains: readonly string[], terminal: Terminal): string {
  const named = summary.clusters.some(cluster => cluster.domains.length > 0)
  const rows = summary.clusters.map(({ size, meanSimilarity, domains: of }, worker) => [
    `${worker}`,
    whole(size),
    meanSimilarity.toFixed(3),
    ...(named ? of.map(requests => (requests === 0 ? '·' : `${requests}`)) : []),
  ])
  const columns = ['worker', 'size', 'similarity', ...(named ? domains.map(printable) : [])].map(title => ({
    title,
    align: 'right' as const,
  }))
  const median = summary.bestSimilarity.find(({ q }) => q === 0.5)?.value ?? 0
  const sizes = `mean cosine to the own centroid ${fixed(summary.meanSimilarity, 3)}, median cosine to the nearest ${fixed(median, 3)}`
  const plain =
    summary.balance === 'exact' && summary.vanillaSizes.length > 0
      ? `; plain K-means would give sizes ${summary.vanillaSizes[0]} … ${summary.vanillaSizes.at(-1)}`
      : ''
  const kind = summary.balance === 'exact' ? 'balanced' : 'plain'
  const footer = `  ${wrapped(terminal.dim(sizes + plain), terminal.width - 2, 2)}`
  return `${section(`Clusters, one for each of ${summary.workers} decode workers`, kind, table(columns, rows, terminal), terminal)}\n${footer}`
}

export function placementTable({ ranks, batch, perCluster }: PlacementSummary, terminal: Terminal): string {
  const percent = (value: number, base: number) =>
    base > 0 ? `${fixed(100 * (value / base - 1), 1)} %` : '–'
  const rows = perCluster.map(({ linear, global, own, ideal }, cluster) => [
    `${cluster}`,
    linear.toFixed(2),
    global.toFixed(2),
    own.toFixed(2),
    ideal.toFixed(2),
    percent(own, linear),
    percent(own, global),
  ])
  const columns = ['cluster', 'linear', 'global', 'own', 'ideal', 'own/linear', 'own/global'].map(title => ({
    title,
    align: 'right' as const,
  }))
  const title = `Expert placement on ${ranks} ranks: expected active experts on the fullest rank`
  return section(
    title,
    `batch ${batch}, mean over layers; ideal: all ranks equal; paper §5`,
    table(columns, rows, terminal),
    terminal,
  )
}
