import type { FitSummary, PlacementSummary } from '../fit/summary.ts'
import { bar, sparkline, table } from './table.ts'
import { fixed, whole } from './numbers.ts'
import { printable, type Terminal } from './terminal.ts'

type Clustered = Pick<FitSummary, 'clusters' | 'workers' | 'balance' | 'meanSimilarity' | 'vanillaSizes' | 'bestSimilarity'>

/** The result of a fit as a person reads it in a terminal. */
export function fitTables(summary: FitSummary, terminal: Terminal): string {
  const { source } = summary
  const what = [source.model, source.workload]
    .filter(text => text !== undefined)
    .map(printable)
    .join(' · ')
  return [
    `${terminal.bold(what)}  ${whole(source.requests)} requests × ${source.layers} layers × ${source.experts} experts, top-${source.topK}`,
    terminal.dim(`trace ${printable(source.file)}, sha256 ${source.sha256.slice(0, 12)}, seed ${summary.seed}, eldr ${source.version}`),
    ...(summary.transforms.length > 0 ? ['', transformTable(summary, terminal)] : []),
    ...(summary.curves.length > 0 ? ['', curveTable(summary, terminal)] : []),
    '',
    clusterTable(summary, source.domains, terminal),
    ...(summary.placement ? ['', placementTable(summary.placement, terminal)] : []),
    ...(summary.notes.length > 0 ? ['', ...summary.notes.map(note => `${terminal.warn('note')} ${printable(note)}`)] : []),
  ].join('\n')
}

function transformTable({ transforms, chosen, source }: FitSummary, terminal: Terminal): string {
  const partial = transforms.some(({ requests }) => requests < source.requests)
  const best = Math.max(...transforms.map(({ rho }) => rho))
  const rows = transforms.map(({ name, rho, requests, pairs, servable }) => [
    name,
    rho.toFixed(3),
    bar(rho / Math.max(best, 1e-9), 20),
    whole(pairs),
    ...(partial ? [whole(requests)] : []),
    name === chosen ? terminal.accent('chosen') : servable ? '' : terminal.dim('study only'),
  ])
  const columns = [
    { title: 'transform' },
    { title: 'ρ', align: 'right' as const },
    { title: '' },
    { title: 'pairs', align: 'right' as const },
    ...(partial ? [{ title: 'requests', align: 'right' as const }] : []),
    { title: '' },
  ]
  return `${terminal.bold('Signature quality ρ, all layers')} ${terminal.dim('(paper Fig. 7)')}\n${table(columns, rows, terminal)}`
}

function curveTable({ curves, source, layers }: FitSummary, terminal: Terminal): string {
  const rows = curves.map(({ transform, order, rho, peak }, at) => [
    transform,
    `${peak} of ${source.layers}`,
    rho[peak - 1]!.toFixed(3),
    rho.at(-1)!.toFixed(3),
    sparkline(rho),
    order.slice(0, peak).join(' '),
    at === 0 ? terminal.accent('chosen') : '',
  ])
  const columns = [
    { title: 'transform' },
    { title: 'kept', align: 'right' as const },
    { title: 'ρ at peak', align: 'right' as const },
    { title: 'all layers', align: 'right' as const },
    { title: 'ρ by layers kept' },
    { title: 'in the order taken' },
    { title: '' },
  ]
  return `${terminal.bold(`Layers kept, greedy on ρ: ${layers.length} of ${source.layers}`)} ${terminal.dim('(paper Fig. 8)')}\n${table(columns, rows, terminal)}`
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
  const sizes = `mean similarity ${summary.meanSimilarity.toFixed(3)}, median of the best ${median.toFixed(3)}`
  const plain =
    summary.vanillaSizes.length > 0 ? `; plain K-means would give sizes ${summary.vanillaSizes[0]} … ${summary.vanillaSizes.at(-1)}` : ''
  const kind = summary.balance === 'exact' ? 'balanced' : 'plain'
  return `${terminal.bold(`Clusters, one for each of ${summary.workers} decode workers`)} ${terminal.dim(`(${kind})`)}\n${table(columns, rows, terminal)}\n  ${terminal.dim(sizes + plain)}`
}

export function placementTable({ ranks, batch, perCluster }: PlacementSummary, terminal: Terminal): string {
  const percent = (value: number, base: number) => (base > 0 ? `${fixed(100 * (value / base - 1), 1)} %` : '–')
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
  return `${terminal.bold(title)} ${terminal.dim(`(batch ${batch}, mean over layers; paper §5)`)}\n${table(columns, rows, terminal)}`
}
