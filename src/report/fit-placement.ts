/** Expert placement of a fit, if requested: active experts on the fullest rank, by layout. */
import type { FitSummary, PlacementSummary } from '../fit/summary.ts'
import { barChart } from './bar-chart.ts'
import { figure, looseGrid, section, table } from './blocks.ts'
import { MAX_ROWS } from './fit-clusters.ts'
import { traceName } from './fit-words.ts'
import type { Markup } from './markup.ts'
import { fixed, many, percent } from './numbers.ts'
import { extent } from './scale.ts'

const LAYOUTS = [
  { key: 'linear', label: 'linear: by expert id' },
  { key: 'global', label: 'global: one for all clusters' },
  { key: 'own', label: 'own: one per cluster' },
  { key: 'ideal', label: 'ideal: mean over ranks' },
] as const

export function placementSection(
  summary: FitSummary,
  { ranks, batch, perCluster }: PlacementSummary,
): Markup {
  const title = 'Experts on the fullest rank'
  const layouts = LAYOUTS.map(({ key, label }) => {
    const values = perCluster.map(cluster => cluster[key]).filter(Number.isFinite)
    return {
      key,
      label,
      mean: values.reduce((sum, value) => sum + value, 0) / values.length,
      range: extent(values),
    }
  })
  const mean = (key: (typeof LAYOUTS)[number]['key']) => layouts.find(layout => layout.key === key)!.mean
  const saved = 1 - mean('own') / mean('linear')
  const finding = Number.isFinite(saved)
    ? `With its own placement a cluster’s fullest rank has ${fixed(mean('own'), 1)} active experts on average, ${percent(Math.abs(saved), 1)} ${saved < 0 ? 'more' : 'fewer'} than with the linear one (${fixed(mean('linear'), 1)}); the lower bound is ${fixed(mean('ideal'), 1)}.`
    : undefined
  const chart = barChart({
    id: 'placement',
    title,
    description: finding ?? title,
    axis: { label: 'active experts on the fullest rank of a decode step' },
    groups: [
      {
        bars: layouts.map(({ key, label, mean, range }) => ({
          label,
          value: mean,
          shown: fixed(mean, 2),
          low: range?.low,
          high: range?.high,
          hollow: key === 'ideal',
          group: key === 'own' ? 0 : -1,
          starred: key === 'own',
          tooltip: `${label}: mean ${fixed(mean, 2)}, from ${fixed(range?.low, 2)} to ${fixed(range?.high, 2)} over clusters`,
        })),
      },
    ],
    nothing: 'no cluster has a placement',
  })
  const how = `Expected for ${many(batch, 'request')} per step on ${many(ranks, 'rank')}, mean over layers, from decode patterns of ${traceName(summary)}.`
  return section(
    'Expert placement',
    'An expert-parallel decoder waits for the rank with the most active experts. Each cluster’s experts are therefore spread over ranks by how likely its steps activate them (paper §5).',
    looseGrid(
      figure({
        title,
        finding,
        chart,
        caption: `Shorter is better. Bars are means over clusters, whiskers the range. ${how}`,
      }),
      table({
        title: 'By cluster',
        columns: ['worker', 'linear', 'global', 'own', 'ideal', 'own vs linear'].map((title, at) =>
          at === 0 ? { title } : { title, kind: 'number' },
        ),
        rows: perCluster
          .slice(0, MAX_ROWS)
          .map((of, worker) => [
            String(worker),
            ...LAYOUTS.map(({ key }) => fixed(of[key], 2)),
            change(of.own, of.linear),
          ]),
        foot: ['mean', ...layouts.map(layout => fixed(layout.mean, 2)), change(mean('own'), mean('linear'))],
        caption: `Active experts on the fullest rank, by layout; ideal is the mean over ranks. ${perCluster.length > MAX_ROWS ? `The first ${MAX_ROWS} clusters; all are in --json. ` : ''}${how}`,
      }),
    ),
  )
}

function change(value: number, base: number): string {
  const share = value / base - 1
  return Number.isFinite(share) ? `${share > 0 ? '+' : ''}${fixed(100 * share, 1)} %` : '–'
}
