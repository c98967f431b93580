/** Figures 9, 1 and 3 of the paper: the signature space, experts by domain, and prefill against decode. */
import type { FitFigures, FitSummary } from '../fit/summary.ts'
import { figure } from './blocks.ts'
import { domainGroups, domainLegend, MAX_GROUPS, type DomainGroups } from './fit-groups.ts'
import { clusteredRequests, shortName, traceName, variance } from './fit-words.ts'
import { heatMap } from './heat-map.ts'
import { legend, type LegendEntry } from './legend.ts'
import type { Markup } from './markup.ts'
import { fixed, many, percent, whole } from './numbers.ts'
import { extent } from './scale.ts'
import { MAX_NUMBERED, scatterPlot, thinned, type OverlayMarker, type ScatterPoint } from './scatter-plot.ts'

/** More points cover each other and only make the page larger. */
const MAX_POINTS = 4000
const MAX_CENTROIDS = 512

export function planeFigure(summary: FitSummary, { pca }: FitFigures): Markup {
  const title = 'Signatures and centroids in their principal plane'
  const domains = domainGroups(summary)
  const points = pca.points.map(({ x, y, domain, cluster }): ScatterPoint => ({
    x,
    y,
    group: planeGroup(summary, domains, domain, cluster),
  }))
  const shown = thinned(points, MAX_POINTS)
  const requests = clusteredRequests(summary)
  const centroids = pca.centroids.slice(0, MAX_CENTROIDS)
  const finding = `The plane holds ${variance(pca.explained[0] + pca.explained[1])} of the signatures of ${many(requests, 'request')}; ${many(pca.centroids.length, 'centroid')}, one for each worker.`
  const chart = scatterPlot({
    id: 'plane',
    title,
    description: finding,
    x: { label: `first principal component (${variance(pca.explained[0])})` },
    y: { label: `second principal component (${variance(pca.explained[1])})` },
    points: shown,
    overlay: centroids.map(({ x, y }, worker): OverlayMarker => ({
      x,
      y,
      label: String(worker),
      tooltip: clusterInWords(summary, worker),
    })),
    nothing: 'no request has a signature',
  })
  const thin =
    shown.length < requests
      ? ` ${whole(shown.length)} of the ${whole(requests)} requests are drawn, evenly chosen.`
      : ''
  const numbers =
    centroids.length > MAX_NUMBERED
      ? 'rings are centroids (the worker is in the tooltip)'
      : 'a ring is a centroid with its worker’s number'
  const colouring =
    domains.groups.length > 0 ? ', coloured by domain' : isByCluster(summary) ? ', coloured by cluster' : ''
  const first =
    centroids.length < pca.centroids.length ? `, the first ${whole(centroids.length)} of them` : ''
  return figure({
    title,
    finding,
    legend: legend([
      ...planeLegend(summary, domains, shown),
      { label: 'centroid', swatch: { kind: 'centroid' } },
    ]),
    chart,
    caption: `Each point is a calibration request${colouring}; ${numbers}${first}: points that lie together will share experts at decode (paper Fig. 9).${thin} Trace: ${traceName(summary)}.`,
  })
}

/** By domain; without domains by cluster, while there are colours. */
function planeGroup(summary: FitSummary, domains: DomainGroups, domain: number, cluster: number): number {
  if (domains.groups.length > 0) return domains.of(domain)
  return isByCluster(summary) ? cluster : 0
}

const isByCluster = ({ workers }: FitSummary): boolean => workers <= MAX_GROUPS

function planeLegend(
  summary: FitSummary,
  domains: DomainGroups,
  shown: readonly ScatterPoint[],
): LegendEntry[] {
  if (domains.groups.length === 0)
    return isByCluster(summary) ? [] : [{ label: 'request', swatch: { kind: 'marker', group: 0 } }]
  const unnamed = shown.some(({ group }) => group < 0) && !domains.groups.some(({ group }) => group < 0)
  return [
    ...domainLegend(domains, 'marker'),
    ...(unnamed ? [{ label: 'unknown domain', swatch: { kind: 'marker', group: -1 } } as const] : []),
  ]
}

function clusterInWords({ clusters, source }: FitSummary, worker: number): string {
  const cluster = clusters[worker]
  if (cluster === undefined) return `worker ${worker}`
  const most = cluster.domains.reduce(
    (best, requests, domain) => (requests > (cluster.domains[best] ?? 0) ? domain : best),
    0,
  )
  const leading = cluster.domains[most] ?? 0
  const mostly =
    leading > 0 ? `, ${percent(leading / cluster.size)} ${shortName(source.domains[most] ?? 'unknown')}` : ''
  return `worker ${worker}: ${many(cluster.size, 'request')}, mean similarity ${fixed(cluster.meanSimilarity, 3)}${mostly}`
}

export function heatFigure(summary: FitSummary, { heat }: FitFigures): Markup {
  const title = 'Experts that each domain prefers at decode'
  const rows = heat?.rows ?? []
  const columns = heat?.experts ?? []
  const leads = columns.map((_, c) =>
    rows.reduce((best, row, r) => ((row.values[c] ?? 0) > (rows[best]!.values[c] ?? 0) ? r : best), 0),
  )
  const led = rows.map((_, r) => leads.filter(leader => leader === r).length)
  const above = rows
    .flatMap(({ values }) => values.filter(value => value > 1 && Number.isFinite(value)))
    .sort((a, b) => a - b)
  const highest = above.at(-1) ?? 1
  // A few extreme experts must not wash out the colours of all others.
  const to = Math.max(1.2, Math.ceil((above[Math.floor(above.length * 0.98)] ?? 1) * 10) / 10)
  const finding =
    heat === undefined
      ? undefined
      : `At layer ${heat.layer}, where domains differ most, a domain leads on ${range(led)} of the ${whole(columns.length)} experts; the strongest preference is ${fixed(highest, 1)} × the mean over domains.`
  const chart = heatMap({
    id: 'experts',
    title,
    description: finding ?? title,
    rows: rows.map(({ domain, values }, r) => ({
      label: shortName(domain),
      values,
      note: `leads ${whole(led[r])}`,
    })),
    columns: columns.map(String),
    columnNoun: 'expert',
    columnAxis: `${many(columns.length, 'expert')} of layer ${heat?.layer ?? 0}, ordered by the domain that leads`,
    from: 1,
    to,
    fromLabel: 'mean or below',
    toLabel: `${highest > to ? '≥ ' : ''}${fixed(to, 1)} ×`,
    format: value => `${fixed(value, 2)} × the mean over domains`,
    nothing:
      summary.source.domains.length === 0 ? 'the trace names no domains' : 'the trace has no decode data',
  })
  return figure({
    title,
    finding,
    chart,
    wide: true,
    caption: `One row per domain, one column per expert. Stronger colour: the expert is active more often in that domain’s decode steps than on average over domains; at or below the mean it is blank. Blocks along the diagonal are experts of one domain (paper Fig. 1). Trace: ${traceName(summary)}.`,
  })
}

function range(values: readonly number[]): string {
  const { low, high } = extent(values) ?? { low: 0, high: 0 }
  return low === high ? whole(low) : `${whole(low)} to ${whole(high)}`
}

export function activationFigure(summary: FitSummary, { activation }: FitFigures): Markup {
  const title = 'Prefill against decode activation'
  const points = (activation?.points ?? []).map(({ x, y }): ScatterPoint => ({ x, y, group: 0 }))
  const shown = thinned(points, MAX_POINTS)
  const finding =
    activation === undefined
      ? undefined
      : `Correlation ${fixed(activation.correlation, 3)} between an expert’s share of prefill and of decode, over ${whole(points.length)} experts of ${many(summary.source.layers, 'layer')}.`
  const chart = scatterPlot({
    id: 'activation',
    title,
    description: finding ?? title,
    x: { label: 'share of prefill choices (1 = average expert)', from: 0 },
    y: { label: 'share of decode choices (1 = average expert)', from: 0 },
    points: shown,
    diagonal: true,
    nothing: 'the trace has no decode data',
  })
  const thin =
    shown.length < points.length
      ? ` ${whole(shown.length)} of the ${whole(points.length)} points are drawn, evenly spaced.`
      : ''
  return figure({
    title,
    finding,
    chart,
    caption: `Each point is one expert of one layer. On the diagonal its share is the same in prefill and decode, so prefill predicts decode (paper Fig. 3).${thin} Trace: ${traceName(summary)}.`,
  })
}
