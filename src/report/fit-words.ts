/** The result of a fit in words, and phrases that several figures share. */
import type { FitSummary, TransformQuality } from '../fit/summary.ts'
import { clipped, fixed, many, percent, whole } from './numbers.ts'
import { extent } from './scale.ts'

/** Names come from files and may be long. The page's facts show up to 200 characters. */
export const shortName = (text: string): string => clipped(text, 48)

/** File name of the trace, for captions. */
export function traceName({ source }: FitSummary): string {
  return shortName(source.file.split(/[/\\]/).findLast(part => part !== '') ?? source.file)
}

export const rhoText = (rho: number | undefined): string => `ρ\u00a0=\u00a0${fixed(rho, 3)}`

/** Clustered requests; requests without a signature are not clustered. */
export const clusteredRequests = ({ clusters }: FitSummary): number =>
  clusters.reduce((sum, { size }) => sum + size, 0)

/**
 * ρ of the chosen transform over all layers, from its curve or, if layers were given, from the comparison of
 * transforms.
 */
export function rhoOfAllLayers({ curves, chosen, transforms, source }: FitSummary): number | undefined {
  const curve = curves.find(({ transform }) => transform === chosen)
  const last = curve !== undefined && curve.order.length === source.layers ? curve.rho.at(-1) : undefined
  return last ?? transforms.find(({ name }) => name === chosen)?.rho
}

export function resultInWords(summary: FitSummary): string {
  return `${signatureInWords(summary)} ${clustersInWords(summary)}`
}

export function signatureInWords(summary: FitSummary): string {
  const { chosen, layers, source, rho } = summary
  const kept =
    layers.length === source.layers
      ? `all ${many(source.layers, 'layer')}`
      : `${layers.length} of ${many(source.layers, 'layer')}`
  if (rho === undefined)
    return `Signatures use the ${chosen} transform over ${kept}; their quality ρ was not measured.`
  const all = rhoOfAllLayers(summary)
  const gain =
    all === undefined || layers.length === source.layers ? '' : ` (over all layers: ${fixed(all, 3)})`
  return `The ${chosen} transform over ${kept} predicts which requests decode alike with ${rhoText(rho)}${gain}.`
}

/** Why this transform. */
export function whyChosen(summary: FitSummary): string {
  const { chosen, transforms, curves, asked } = summary
  const own = transforms.find(({ name }) => name === chosen)
  if (own === undefined) return `${chosen} was chosen without comparison: the trace has no decode data.`
  if (!own.servable)
    return `${chosen} was requested and is for study only: no hand-off carries its data, so no gateway can use this fit.`
  const servable = transforms.filter(transform => transform.servable)
  const best = servable.reduce((a, b) => (b.rho > a.rho ? b : a))
  if (asked.transform !== 'auto') {
    const other =
      best.name === chosen
        ? 'and is the best over all layers too'
        : `; over all layers ${best.name} has ${rhoText(best.rho)} against ${fixed(own.rho, 3)}`
    return `${chosen} was requested${best.name === chosen ? ' ' : ''}${other}.`
  }
  const peaks = curves.map(({ transform, rho, peak }) => ({ transform, rho: rho[peak - 1] ?? -Infinity }))
  const ownPeak = peaks.find(({ transform }) => transform === chosen)?.rho
  const rivals = peaks.filter(({ transform }) => transform !== chosen)
  if (ownPeak !== undefined && rivals.length > 0 && rivals.every(({ rho }) => rho <= ownPeak)) {
    const second = rivals.reduce((best, rival) => (rival.rho > best.rho ? rival : best))
    return `Of the ${servable.length} transforms that a hand-off can carry, layers were searched for the best ${peaks.length}, and ${chosen} has the highest ρ (${second.transform}: ${fixed(second.rho, 3)}).${studyRemark(own, transforms)}`
  }
  const others =
    servable.length === 1
      ? 'the only transform here that a hand-off can carry'
      : `the best on the kept layers of the ${servable.length} transforms that a hand-off can carry`
  return `${chosen} is ${others}.${studyRemark(own, transforms)}`
}

/** Names a better transform that cannot be served. */
function studyRemark(own: TransformQuality, transforms: readonly TransformQuality[]): string {
  const better = transforms.filter(({ servable, rho }) => !servable && rho > own.rho)
  if (better.length === 0) return ''
  const top = better.reduce((a, b) => (b.rho > a.rho ? b : a))
  return ` Over all layers ${top.name} has a higher ρ (${fixed(top.rho, 3)}), but no hand-off carries gate scores.`
}

function clustersInWords(summary: FitSummary): string {
  const { workers, balance, meanSimilarity } = summary
  const sizes = sizeRange(summary.clusters.map(({ size }) => size))
  const kind = balance === 'exact' ? 'balanced ' : 'unbalanced '
  return `${many(clusteredRequests(summary), 'request')} form ${whole(workers)} ${kind}${workers === 1 ? 'cluster' : 'clusters'} of ${sizes}, one per decode worker; the mean similarity to the centroid is ${fixed(meanSimilarity, 3)}.`
}

/** `62–63 requests`. */
export function sizeRange(sizes: readonly number[]): string {
  const range = extent(sizes)
  if (range === undefined) return 'no requests'
  const { low, high } = range
  return low === high ? many(low, 'request') : `${whole(low)}–${whole(high)} requests`
}

/**
 * Share of the requests whose domain is the most frequent one of their cluster; undefined without domains.
 */
export function purity({ clusters }: FitSummary): number | undefined {
  const total = clusters.reduce((sum, { domains }) => sum + domains.reduce((a, b) => a + b, 0), 0)
  if (total === 0) return undefined
  return clusters.reduce((sum, { domains }) => sum + Math.max(0, ...domains), 0) / total
}

export const variance = (share: number): string => `${percent(share)} of the variance`
