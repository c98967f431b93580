/** The report of `eldr fit --report`, from the same summary as the terminal tables and `--json`. */
import type { FitFigures, FitSummary } from '../fit/summary.ts'
import { barChart } from './bar-chart.ts'
import { facts, figure, grid, notes, section } from './blocks.ts'
import { balanceFigure, clusterTable, similarityFigure } from './fit-clusters.ts'
import { placementSection } from './fit-placement.ts'
import { layerFigure, transformFigure } from './fit-quality.ts'
import { activationFigure, heatFigure, planeFigure } from './fit-space.ts'
import { resultInWords, rhoText, shortName, traceName, whyChosen } from './fit-words.ts'
import { element, together, type Markup } from './markup.ts'
import { clipped, duration, many, whole } from './numbers.ts'
import { page } from './page.ts'

export function fitPage(summary: FitSummary, figures: FitFigures): string {
  const { source } = summary
  const what = [source.model, source.workload]
    .filter(name => name !== undefined && name !== '')
    .map(name => clipped(name!, 80))
    .join(', ')
  const result = resultInWords(summary)
  return page({
    title: `${clipped(what, 60)}: ELDR fit`,
    description: result,
    version: source.version,
    header: together(
      element('p', { class: 'eyebrow' }, `ELDR fit report · ${many(summary.workers, 'decode worker')}`),
      element('h1', {}, what),
      element('p', { class: 'lede' }, result),
      element('p', { class: 'why' }, whyChosen(summary)),
      sourceFacts(summary),
      notes(summary.notes.map(note => clipped(note, 600))),
    ),
    body: together(
      section(
        'Signature',
        'A signature is how often prefill chose each expert for a request. Quality ρ says how well it predicts, before decode, which requests will activate the same experts.',
        grid(transformFigure(summary), layerFigure(summary)),
      ),
      section(
        'Expert locality',
        'Expert locality needs three things: similar requests prefer the same experts, prefill shows this before decode begins, and their signatures are close.',
        grid(planeFigure(summary, figures), activationFigure(summary, figures), heatFigure(summary, figures)),
      ),
      section(
        'Clusters, one per worker',
        'Centroid k belongs to the k-th decode worker. Clusters of equal size give workers equal shares of calibration traffic.',
        grid(clusterTable(summary), balanceFigure(summary), similarityFigure(summary)),
      ),
      summary.placement === undefined ? undefined : placementSection(summary, summary.placement),
      section('Time', undefined, grid(stageFigure(summary))),
    ),
    footer: element(
      'p',
      {},
      `Every number on this page was computed by eldr ${clipped(source.version, 40)} from ${traceName(summary)} (sha256 ${source.sha256.slice(0, 12)}) with seed ${summary.seed}. The same trace, options and seed give the same fit. “Paper Fig. n” names the corresponding figure of the ELDR paper; the data is from this trace.`,
    ),
  })
}

function sourceFacts({ source, seed, workers, balance, chosen, layers, rho }: FitSummary): Markup {
  return facts([
    { term: 'trace', value: element('code', {}, clipped(source.file, 200)), long: true },
    { term: 'sha256 of the trace', value: element('code', {}, `${source.sha256.slice(0, 16)}…`) },
    { term: 'model', value: clipped(source.model, 200) },
    {
      term: 'shape',
      value: `${many(source.layers, 'layer')} × ${many(source.experts, 'expert')}, top-${source.topK}`,
    },
    {
      term: 'requests',
      value: `${whole(source.requests)}${source.workload === undefined ? '' : `, ${shortName(source.workload)} workload`}`,
    },
    { term: 'domains', value: source.domains.length === 0 ? 'none named' : whole(source.domains.length) },
    {
      term: 'signature',
      value: `${chosen}, ${whole(layers.length)} of ${many(source.layers, 'layer')}${rho === undefined ? '' : `, ${rhoText(rho)}`}`,
    },
    {
      term: 'clusters',
      value: `${whole(workers)}, ${balance === 'exact' ? 'at most ⌈N/K⌉ requests each' : 'not balanced'}`,
    },
    { term: 'seed', value: String(seed) },
    { term: 'fitted by', value: `eldr ${clipped(source.version, 40)}` },
  ])
}

function stageFigure(summary: FitSummary): Markup {
  const { stages } = summary
  const title = 'Time of each stage'
  const total = stages.reduce((sum, { ms }) => sum + (Number.isFinite(ms) ? ms : 0), 0)
  const long = stages.some(({ ms }) => ms >= 10_000)
  const finding = stages.length === 0 ? undefined : `${duration(total)} in total (paper §6.2: under 10 s).`
  const chart = barChart({
    id: 'stages',
    title,
    description: finding ?? title,
    axis: { label: long ? 'seconds' : 'milliseconds' },
    groups: [
      {
        bars: stages.map(({ name, ms }) => ({
          label: name,
          value: long ? ms / 1000 : ms,
          shown: duration(ms),
        })),
      },
    ],
    nothing: 'no stage was timed',
  })
  return figure({
    title,
    finding,
    chart,
    caption: 'Wall-clock time of the fit, without writing this page.',
  })
}
