/**
 * Source lines of exhibits as docs/evidence/results.md shows them: without what the page says once for all.
 */

/** Parts of the line that `simulatedFrom` writes. */
export interface SimulatedSource {
  readonly cluster: string
  readonly traces: string
  readonly clusters: string
  readonly arrivals: string
  readonly rows: string
  /** “4,000 requests per run, 3 seeds; ± is …” */
  readonly runs: string
  readonly rest: string
}

const SIMULATED =
  /^Simulated: (?<cluster>.*?), (?<traces>lab16[^;]*); artifact count-idf, (?<clusters>.*?), fitted on [^;]*; (?<arrivals>.*?) arrivals, (?<rows>.*?), (?<runs>[\d,]+ requests per run.*? over seeds)\. ?(?<rest>.*)$/

export function simulatedSource(source: string): SimulatedSource | undefined {
  return SIMULATED.exec(source)?.groups as unknown as SimulatedSource | undefined
}

export const isStandard = ({ arrivals }: SimulatedSource): boolean => arrivals === 'Poisson'

/** Without the hashes of the traces and the standard conditions. */
export function shortSource(source: string): string {
  const found = simulatedSource(source)
  if (found === undefined) return source.replaceAll(/ \(sha256 [0-9a-f]+…\)/g, '')
  const { cluster, traces, clusters, arrivals, rows, rest } = found
  const mixes = ['task', 'lang'].filter(name => traces.includes(`lab16-${name}.`)).join(' and ')
  const artifact = clusters === '16 clusters' ? '' : `, ${clusters}`
  const requests = isStandard(found) ? '' : `; ${arrivals} arrivals, ${rows}`
  return `Simulated: ${cluster}, lab16 ${mixes}${artifact}${requests}. ${rest}`.trim()
}
