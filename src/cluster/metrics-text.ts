/** One line of Prometheus text. */
export interface Sample {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  /** May be NaN or infinite, as the format allows. */
  readonly value: number
}

/**
 * The samples of these names. Tolerant, since workers are different programs: comments, timestamps, exemplars
 * and anything that is not a sample are skipped, and a broken line is skipped alone.
 */
export function readSamples(text: string, names: ReadonlySet<string>): Sample[] {
  const samples: Sample[] = []
  for (let at = 0; at < text.length;) {
    const newline = text.indexOf('\n', at)
    const end = newline === -1 ? text.length : newline
    const sample = readLine(text, at, end, names)
    if (sample !== undefined) samples.push(sample)
    at = end + 1
  }
  return samples
}

/**
 * Samples of one data-parallel engine, and those of the whole server. All samples if none belongs to the
 * engine, or if no engine is given.
 */
export function ofEngine(samples: readonly Sample[], dpRank: number | undefined): readonly Sample[] {
  const engine = String(dpRank)
  if (dpRank === undefined || !samples.some(({ labels }) => labels['engine'] === engine)) return samples
  return samples.filter(({ labels }) => labels['engine'] === undefined || labels['engine'] === engine)
}

/**
 * One number per name: the sum over labels, such as those of data-parallel engines. NaN and infinite values
 * are skipped.
 */
export function sumByName(samples: readonly Sample[]): Map<string, number> {
  const sums = new Map<string, number>()
  for (const { name, value } of samples)
    if (Number.isFinite(value)) sums.set(name, (sums.get(name) ?? 0) + value)
  return sums
}

const NAME = /[ \t]*([^\s{#]+)[ \t]*/y
const LABEL = /\s*([^\s={},"]+)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?/y
const VALUE = /\s*([^\s#]+)/y
const NUMBER = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?$/i
const WORDS: ReadonlyMap<string, number> = new Map([
  ['nan', NaN],
  ['inf', Infinity],
  ['+inf', Infinity],
  ['-inf', -Infinity],
])

function readLine(text: string, from: number, end: number, names: ReadonlySet<string>): Sample | undefined {
  NAME.lastIndex = from
  const name = NAME.exec(text)?.[1]
  // Most lines have other names and cost no more than this.
  if (name === undefined || !names.has(name)) return undefined
  const line = text.slice(NAME.lastIndex, end)
  const labels: Record<string, string> = {}
  let at = 0
  if (line.startsWith('{')) {
    LABEL.lastIndex = at = 1
    for (let label = LABEL.exec(line); label !== null; label = LABEL.exec(line)) {
      labels[label[1]!] = label[2]!.replace(/\\([n"\\])/g, (_, escaped) => (escaped === 'n' ? '\n' : escaped))
      at = LABEL.lastIndex
    }
    while (line[at] === ' ') at++
    if (line[at] !== '}') return undefined
    at++
  }
  VALUE.lastIndex = at
  const value = numberOf(VALUE.exec(line)?.[1])
  return value === undefined ? undefined : { name, labels, value }
}

function numberOf(word: string | undefined): number | undefined {
  if (word === undefined) return undefined
  return NUMBER.test(word) ? Number(word) : WORDS.get(word.toLowerCase())
}
