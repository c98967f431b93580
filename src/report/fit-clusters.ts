/** The clusters of a fit: composition, balance, and similarity of requests to centroids. */
import type { ClusterSummary, FitSummary } from '../fit/summary.ts'
import { facts, figure, table, type Column } from './blocks.ts'
import { domainGroups, domainLegend, type DomainGroups } from './fit-groups.ts'
import { clusteredRequests, purity, shortName, sizeRange, traceName } from './fit-words.ts'
import { legend } from './legend.ts'
import { lineChart } from './line-chart.ts'
import { element, type Child, type Markup } from './markup.ts'
import { fixed, many, percent, whole } from './numbers.ts'
import { stackedBar } from './stacked-bar.ts'

/** Longer tables are cut; `--json` has all rows. */
export const MAX_ROWS = 512
const MAX_NAMED = 4

export function clusterTable(summary: FitSummary): Markup {
  const { clusters, source } = summary
  const domains = domainGroups(summary)
  const named = domains.groups.length > 0
  const pure = purity(summary)
  const columns: Column[] = [
    { title: 'worker' },
    { title: 'requests', kind: 'number' },
    { title: 'mean similarity', kind: 'number' },
    ...(named ? [{ title: 'requests by domain', kind: 'parts' } as const] : []),
  ]
  const rows = clusters
    .slice(0, MAX_ROWS)
    .map((cluster, worker): Child[] => [
      String(worker),
      whole(cluster.size),
      fixed(cluster.meanSimilarity, 3),
      ...(named ? [composition(cluster, source.domains, domains)] : []),
    ])
  const left = clusters.length - rows.length
  return table({
    title: 'Composition of each cluster',
    finding:
      pure === undefined
        ? undefined
        : `${percent(pure)} of the requests belong to the most frequent domain of their cluster.`,
    legend: named ? legend(domainLegend(domains, 'bar')) : undefined,
    columns,
    rows,
    foot: [
      'all',
      whole(clusteredRequests(summary)),
      fixed(summary.meanSimilarity, 3),
      ...(named ? [composition(total(clusters), source.domains, domains)] : []),
    ],
    caption: `One row per cluster, numbered as its decode worker, from 0. Similarity is the mean cosine of its requests to its centroid.${left > 0 ? ` ${many(left, 'more row')} not shown: see --json.` : ''} Trace: ${traceName(summary)}, seed ${summary.seed}.`,
    wide: true,
  })
}

function total(clusters: readonly ClusterSummary[]): ClusterSummary {
  const domains =
    clusters[0]?.domains.map((_, domain) =>
      clusters.reduce((sum, cluster) => sum + (cluster.domains[domain] ?? 0), 0),
    ) ?? []
  return { size: 0, meanSimilarity: 0, domains }
}

/** A bar and the names of the largest domains. */
function composition(
  { domains: counts }: ClusterSummary,
  names: readonly string[],
  domains: DomainGroups,
): Markup {
  const parts = counts
    .map((value, domain) => ({
      value,
      group: domains.of(domain),
      label: shortName(names[domain] ?? 'unknown'),
    }))
    .filter(({ value }) => value > 0)
  const falling = parts.toSorted((a, b) => b.value - a.value)
  const words = (some: typeof falling) =>
    some.map(({ label, value }) => `${label} ${whole(value)}`).join(', ')
  const rest = falling.slice(MAX_NAMED)
  const further =
    rest.length > 0 ? `, ${rest.length} more: ${whole(rest.reduce((sum, { value }) => sum + value, 0))}` : ''
  const bar = stackedBar(
    parts.toSorted((a, b) => order(a.group) - order(b.group)),
    words(falling),
  )
  return element('div', {}, bar, element('span', {}, words(falling.slice(0, MAX_NAMED)) + further))
}

/** The neutral group is last. */
const order = (group: number): number => (group < 0 ? Infinity : group)

export function balanceFigure(summary: FitSummary): Markup {
  const { clusters, vanillaSizes, balance } = summary
  const title = 'Cluster sizes, balanced and plain'
  const sizes = clusters.map(({ size }) => size).sort((a, b) => b - a)
  const share = clusteredRequests(summary) / Math.max(1, clusters.length)
  const largest = vanillaSizes[0] ?? 0
  const plain = `plain K-means ${balance === 'exact' ? 'would give' : 'gives'} ${sizeRange(vanillaSizes)} and its largest worker ${fixed(largest / share, 1)} × an equal share`
  const finding =
    vanillaSizes.length === 0 || clusters.length === 0
      ? undefined
      : balance === 'exact'
        ? `Balanced clusters have ${sizeRange(sizes)}; ${plain}.`
        : `This fit is not balanced: ${plain}.`
  const series = [
    ...(balance === 'exact' ? [{ label: 'balanced: this fit', group: 0, points: ranked(sizes) }] : []),
    {
      label: balance === 'exact' ? 'plain K-means, for comparison' : 'plain K-means: this fit',
      group: 1,
      dashed: balance === 'exact',
      points: ranked(balance === 'exact' ? vanillaSizes : sizes),
    },
  ]
  const chart = lineChart({
    id: 'balance',
    title,
    description: finding ?? title,
    x: { label: 'clusters, the largest first', whole: true, from: 1, tight: true },
    y: { label: 'requests in the cluster', whole: true, from: 0 },
    series,
    rules: [{ y: share, label: `equal share: ${fixed(share, Number.isInteger(share) ? 0 : 1)}` }],
    nothing: 'there are no clusters',
    height: 260,
  })
  return figure({
    title,
    finding,
    legend: legend(
      series.map(({ label, group, ...rest }) => ({
        label,
        swatch: { kind: 'dashed' in rest && rest.dashed ? 'dashed' : 'line', group },
      })),
    ),
    chart,
    caption: `Flat is better: a cluster is a worker’s share of the traffic, so a high left end means an overloaded worker. Balanced clusters avoid this (paper Fig. 15). Trace: ${traceName(summary)}, seed ${summary.seed}.`,
  })
}

/** Sizes by rank; of thousands of clusters evenly spaced ranks, always with the first and the last. */
function ranked(sizes: readonly number[]) {
  const step = Math.max(1, Math.ceil(sizes.length / 400))
  return sizes
    .map((size, rank) => ({
      x: rank + 1,
      y: size,
      tooltip: `cluster ${rank + 1} by size: ${many(size, 'request')}`,
    }))
    .filter((_, rank) => rank % step === 0 || rank === sizes.length - 1)
}

export function similarityFigure(summary: FitSummary): Markup {
  const { bestSimilarity } = summary
  const title = 'Best similarity of the calibration requests'
  const at = (q: number) => bestSimilarity.find(quantile => quantile.q === q)?.value
  const [low, median] = [at(0.05), at(0.5)]
  const finding =
    median === undefined
      ? undefined
      : `Half of the requests have a similarity of ${fixed(median, 3)} or more to their nearest centroid${low === undefined ? '' : `; one in twenty is below ${fixed(low, 3)}`}.`
  const chart = lineChart({
    id: 'similarity',
    title,
    description: finding ?? title,
    x: { label: 'share of requests below', from: 0, to: 1, tight: true, format: value => percent(value) },
    y: { label: 'cosine to the nearest centroid' },
    series: [
      {
        label: 'best similarity',
        group: 0,
        points: bestSimilarity.map(({ q, value }) => ({
          x: q,
          y: value,
          tooltip: `${quantileName(q)}: ${fixed(value, 3)}`,
        })),
      },
    ],
    nothing: 'no request has a signature',
    height: 240,
  })
  return figure({
    title,
    finding,
    chart: [
      chart,
      facts(
        bestSimilarity.map(({ q, value }) => ({ term: quantileName(q), value: fixed(value, 3) })),
        true,
      ),
    ],
    caption: `The reference for live traffic: when its similarities fall below this curve, traffic has drifted from the calibration (not in the paper). Quantiles over ${many(clusteredRequests(summary), 'request')} of ${traceName(summary)}.`,
  })
}

function quantileName(q: number): string {
  if (q === 0) return 'lowest'
  if (q === 1) return 'highest'
  return q === 0.5 ? 'median' : percent(q, Number.isInteger(Math.round(q * 1e6) / 1e4) ? 0 : 1)
}
