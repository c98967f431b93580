/**
 * Fig. 4: batches of one domain compared with mixed batches, at random decode steps of the evaluation
 * requests.
 */
import { createRandom, type Random } from '../math/random.ts'
import type { Exhibit, ExhibitChart } from '../report/exhibit.ts'
import { loadReplay, type Replay } from '../sim/replay.ts'
import { activeExperts, uniteSteps } from '../cost/union.ts'
import { withTrace } from '../trace/trace.ts'
import { namedTrace } from './context.ts'
import { IN_WORDS, type TracePair, type WorkloadName } from './traces.ts'
import { average, fewer, listed, number } from './words.ts'

const BATCHES = [8, 16, 32, 64] as const
const LARGEST = Math.max(...BATCHES)
/** Batches drawn per kind and size; enough for a mean within 0.1 experts. */
const DRAWS = 400

interface DomainBatches {
  readonly workload: WorkloadName
  /** Domains with enough requests to fill the largest batch without repeats. */
  readonly domains: readonly string[]
  readonly rows: readonly { readonly batch: number; readonly same: number; readonly mixed: number }[]
}

export async function domainBatchesExhibit(pairs: readonly TracePair[]): Promise<Exhibit[]> {
  const parts: DomainBatches[] = []
  for (const pair of pairs) {
    const part = await domainBatches(pair)
    if (part !== undefined) parts.push(part)
  }
  if (parts.length === 0) return []
  const changes = (part: DomainBatches) => part.rows.map(({ same, mixed }) => same / mixed - 1)
  return [
    {
      id: 'fig-4',
      title: 'Fig. 4: batches of one domain activate fewer experts',
      finding: `Batches of ${BATCHES[0]} to ${LARGEST} requests of one domain activate ${listed(parts.map(part => `${fewer(...changes(part))} experts (${IN_WORDS[part.workload]})`))} than mixed ones.`,
      paper: {
        finding:
          '17 to 21 % fewer on task domains and 3 to 10 % fewer on languages, at batches of 32 to 128.',
        differs:
          'The experts of lab16 specialise less than those of models a hundred times its size. Rare languages, which differ most from English, have too few requests to fill a batch.',
      },
      source: `Drawn from ${listed(pairs.map(({ evaluation }) => namedTrace(evaluation)))}: ${DRAWS} batches of each size and kind, each request at a random step; domains with at least ${LARGEST} requests (${listed(parts.map(({ domains }) => domains.join(', ')))}), in proportion to their share; mixed batches use the same domains.`,
      tables: parts.map(part => ({
        title: `Active experts per layer, ${IN_WORDS[part.workload]}`,
        columns: ['batch', 'one domain', 'mixed', 'change'],
        rows: part.rows.map(({ batch, same, mixed }) => [
          `${batch}`,
          number(same, 1),
          number(mixed, 1),
          { ...number(100 * (same / mixed - 1), 1, '%'), signed: true },
        ]),
      })),
      charts: parts.map(({ workload, rows }): ExhibitChart => ({
        kind: 'lines',
        title: `Active experts per layer by batch, ${IN_WORDS[workload]}`,
        x: 'requests in the batch',
        y: 'active experts',
        series: (['mixed', 'same'] as const).map(kind => ({
          label: kind === 'same' ? 'one domain' : 'mixed',
          points: rows.map(row => ({ x: row.batch, y: row[kind] })),
        })),
      })),
    },
  ]
}

/** Undefined if the trace names no domains or fewer than two have enough requests. */
async function domainBatches({ workload, evaluation }: TracePair): Promise<DomainBatches | undefined> {
  return withTrace(evaluation.path, async trace => {
    const domainOf = await trace.domain()
    if (domainOf === undefined) return undefined
    const replay = await loadReplay(trace)
    const rowsOf = trace.domains.map((_, d) =>
      Array.from(replay.requestOf.keys()).filter(row => domainOf[replay.requestOf[row]!] === d),
    )
    const large = rowsOf.filter(rows => rows.length >= LARGEST)
    if (large.length < 2) return undefined
    const random = createRandom(0)
    const all = large.flat()
    const draw = (batch: number, rowsToDraw: () => readonly number[]) =>
      average(
        Array.from({ length: DRAWS }, () => activeIn(replay, picked(rowsToDraw(), batch, random), random)),
      )
    /** The domain of a random request, so domains are drawn in proportion to their share. */
    const someDomain = () => rowsOf[domainOf[replay.requestOf[all[random.below(all.length)]!]!]!]!
    return {
      workload,
      domains: trace.domains.filter((_, d) => rowsOf[d]!.length >= LARGEST),
      rows: BATCHES.map(batch => ({ batch, same: draw(batch, someDomain), mixed: draw(batch, () => all) })),
    }
  })
}

/** `count` distinct rows. */
function picked(rows: readonly number[], count: number, random: Random): number[] {
  const left = [...rows]
  return Array.from({ length: count }, () => {
    const at = random.below(left.length)
    const row = left[at]!
    left[at] = left.at(-1)!
    left.pop()
    return row
  })
}

function activeIn(
  { layers, wordsPerStep, start, steps, words }: Replay,
  rows: readonly number[],
  random: Random,
): number {
  const at = Int32Array.from(rows, row => start[row]! + random.below(steps[row]!) * wordsPerStep)
  const union = new Int32Array(wordsPerStep)
  uniteSteps(words, at, rows.length, union)
  return activeExperts(union, new Float64Array(layers).fill(1 / layers))
}
