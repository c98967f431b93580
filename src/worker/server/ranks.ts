/**
 * Several engines behind one URL, like vLLM’s data parallelism: selects the engine of a request and merges
 * their metrics.
 */
import type { IncomingMessage } from 'node:http'
import { badRequest } from './api-error.ts'
import type { WorkerContext } from './context.ts'

/**
 * The engine named by the request’s header. Like vLLM, ignores values that are not numbers and refuses ranks
 * that do not exist.
 */
export function namedRank(
  { ranks }: WorkerContext,
  { headers }: Pick<IncomingMessage, 'headers'>,
): WorkerContext | undefined {
  const given = headers['x-data-parallel-rank']
  if (typeof given !== 'string' || !/^[+-]?\d+$/.test(given)) return undefined
  const rank = Number(given)
  const named = ranks[rank]
  if (named === undefined)
    throw badRequest(`data_parallel_rank ${rank} is out of range [0, ${ranks.length}).`)
  return named
}

/** The named engine, or the one with the fewest requests. */
export function rankFor(ctx: WorkerContext, request: Pick<IncomingMessage, 'headers'>): WorkerContext {
  const named = namedRank(ctx, request)
  if (named !== undefined || ctx.ranks.length === 1) return named ?? ctx
  const loads = ctx.ranks.map(({ engine }) => engine.stats()).map(({ running, waiting }) => running + waiting)
  return ctx.ranks[loads.indexOf(Math.min(...loads))]!
}

/**
 * Merges pages of Prometheus text: each metric once, with the samples of all engines. Process metrics appear
 * once, without an engine.
 */
export function mergedPages(pages: readonly string[]): string {
  if (pages.length === 1) return pages[0]!
  const samples = new Map<string, string[]>()
  for (const [rank, page] of pages.entries())
    for (const block of page.trim().split('\n\n')) {
      const [help = '', type = '', ...lines] = block.split('\n')
      const head = `${help}\n${type}`
      const ofProcess = help.startsWith('# HELP process_')
      if (rank === 0) samples.set(head, ofProcess ? lines.map(withoutEngine) : lines)
      else if (!ofProcess) samples.set(head, [...(samples.get(head) ?? []), ...lines])
    }
  return `${[...samples].map(([head, lines]) => [head, ...lines].join('\n')).join('\n\n')}\n`
}

const withoutEngine = (line: string) =>
  line
    .replace(/,?engine="\d+"/, '')
    .replace('{,', '{')
    .replace('{}', '')
