/** Figures 7 and 8 of the paper: quality of each transform, and of the layers kept. */
import type { FitSummary, LayerCurve, TransformQuality } from '../fit/summary.ts'
import { barChart, type Bar } from './bar-chart.ts'
import { figure } from './blocks.ts'
import { rhoOfAllLayers, rhoText, traceName } from './fit-words.ts'
import { legend, type LegendEntry } from './legend.ts'
import { lineChart, type Series } from './line-chart.ts'
import type { Markup } from './markup.ts'
import { fixed, many, runs, whole } from './numbers.ts'
import { extent } from './scale.ts'

export function transformFigure(summary: FitSummary): Markup {
  const { transforms, chosen } = summary
  const title = 'Signature quality of each transform'
  const bar = ({ name, rho, pairs, requests, servable }: TransformQuality): Bar => ({
    label: name,
    value: rho,
    shown: fixed(rho, 3),
    group: servable ? 0 : -1,
    hollow: !servable,
    starred: name === chosen,
    tooltip: `${name}${name === chosen ? ' (chosen)' : ''}: ${rhoText(rho)} over ${many(pairs, 'pair')} of ${many(requests, 'request')}`,
  })
  const served = transforms.filter(({ servable }) => servable)
  const study = transforms.filter(({ servable }) => !servable)
  const own = transforms.find(({ name }) => name === chosen)
  const finding =
    own === undefined
      ? undefined
      : `Over all layers ${chosen} (chosen) has ${rhoText(own.rho)}; the others ${othersRange(transforms, chosen)}.`
  const chart = barChart({
    id: 'transforms',
    title,
    description: finding ?? title,
    axis: { label: 'ρ over all layers (rank correlation, no unit)' },
    groups: [
      { heading: 'Carried by a hand-off: usable by a gateway', bars: served.map(bar) },
      { heading: 'Study only: no hand-off carries gate scores', bars: study.map(bar) },
    ],
    nothing: 'the trace has no decode data, so ρ cannot be measured',
  })
  return figure({
    title,
    finding,
    chart,
    caption: `Longer is better. ρ is the rank correlation between the similarity of two requests by signature and by decode pattern. The star marks the chosen transform; hollow bars cannot be served (paper Fig. 7). ${measuredOn(summary)}`,
  })
}

function othersRange(transforms: readonly TransformQuality[], chosen: string): string {
  const range = extent(transforms.filter(({ name }) => name !== chosen).map(({ rho }) => rho))
  if (range === undefined) return 'were not measured'
  return range.low === range.high
    ? `have ${fixed(range.low, 3)}`
    : `have ${fixed(range.low, 3)} to ${fixed(range.high, 3)}`
}

function measuredOn(summary: FitSummary): string {
  const { transforms, source } = summary
  const measured = extent(transforms.map(({ requests }) => requests))
  const pairs = extent(transforms.map(({ pairs }) => pairs))
  if (measured === undefined || pairs === undefined) return `Trace: ${traceName(summary)}.`
  const range = ({ low, high }: { low: number; high: number }) =>
    low === high ? whole(low) : `${whole(low)} to ${whole(high)}`
  const some = measured.low < source.requests ? ' (not every request has the data of each transform)' : ''
  return `Measured over ${range(pairs)} pairs of ${range(measured)} requests${some} of ${traceName(summary)}.`
}

export function layerFigure(summary: FitSummary): Markup {
  const { curves, chosen, source, layers, rho, transforms } = summary
  const title = 'Quality by number of layers kept'
  const own = curves.find(({ transform }) => transform === chosen) ?? curves[0]
  const all = rhoOfAllLayers(summary)
  const finding =
    own === undefined
      ? undefined
      : `${own.transform} peaks at ${own.peak} of ${many(source.layers, 'layer')}: ${rhoText(own.rho[own.peak - 1])}${all === undefined ? '' : ` against ${fixed(all, 3)} with all layers`}.`
  const ordered = own === undefined ? curves : [own, ...curves.filter(curve => curve !== own)]
  const series = ordered.map((curve, at) => curveSeries(curve, at))
  const chart = lineChart({
    id: 'layers',
    title,
    description: finding ?? title,
    x: {
      label: 'layers kept, in the order of greedy selection',
      whole: true,
      from: 0,
      to: source.layers,
      tight: true,
    },
    y: { label: 'ρ (rank correlation, no unit)' },
    series,
    rules:
      own === undefined || all === undefined
        ? []
        : [{ y: all, label: `all ${source.layers} layers: ${fixed(all, 3)}` }],
    nothing:
      rho === undefined || transforms.length === 0
        ? 'the trace has no decode data, so layers could not be compared'
        : `layers were not searched: ${layers.length === source.layers ? 'all are used' : 'they were given'}`,
  })
  const entries = series.map(({ label, group, dashed }): LegendEntry => ({
    label,
    swatch: { kind: dashed === true ? 'dashed' : 'line', group },
  }))
  return figure({
    title,
    finding,
    legend:
      own === undefined ? undefined : legend([...entries, { label: 'peak N*', swatch: { kind: 'star' } }]),
    chart,
    caption: `Each step adds the layer that raises ρ most. The layers up to the star are kept; more layers lower ρ (paper Fig. 8). Kept here: ${layers.length === source.layers ? 'all layers' : `layers ${runs(layers)}`} (counted from 0). Trace: ${traceName(summary)}.`,
  })
}

function curveSeries({ transform, order, rho, peak }: LayerCurve, at: number): Series {
  return {
    label: at === 0 ? `${transform} (chosen)` : transform,
    group: at,
    dashed: at > 0,
    points: rho.map((value, i) => ({
      x: i + 1,
      y: value,
      tooltip: `${transform}, ${many(i + 1, 'layer')}${order[i] === undefined ? '' : ` (added: layer ${order[i]})`}: ${rhoText(value)}`,
    })),
    star: {
      index: peak - 1,
      label: at === 0 ? `${many(peak, 'layer')}, ${rhoText(rho[peak - 1])}` : undefined,
    },
  }
}
