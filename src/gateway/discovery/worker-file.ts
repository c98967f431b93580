/**
 * Parses the file of file discovery: worker lists in the format of the configuration. An invalid file is
 * refused completely.
 */
import type * as z from 'zod'
import type { Role } from '../../cluster/worker.ts'
import { parseConfigText } from '../config/config-file.ts'
import { MAX_RANKS } from '../config/origin.ts'
import { isObject, nameOf, type Path } from '../config/paths.ts'
import { workerListsSchema } from '../config/schema/schema.ts'
import { checkWorkers } from '../config/checks/worker-checks.ts'
import { defaultRanks, type RankDefaults, type WorkerForm, workersOf } from '../config/worker-form.ts'
import { type DiscoveredWorker, LookupFailure, MAX_DISCOVERED } from './source.ts'

/** Problems reported per file. */
const MAX_PROBLEMS = 5

/** `defaults`: ranks of servers that do not set them. Throws a LookupFailure with problems and locations. */
export function readWorkerFile(path: string, text: string, defaults: RankDefaults = {}): DiscoveredWorker[] {
  const file = parseConfigText(path, text)
  refuseTooMany(path, file.value, defaults)
  const parsed = workerListsSchema.safeParse(file.value)
  const place = (at: Path) => file.placeOf(at)
  const problems =
    file.problems.length > 0
      ? [...file.problems]
      : [
          ...(parsed.error?.issues ?? []).flatMap(issue => messagesOf(issue, issue.path as Path, place)),
          ...[...checked(file.value, defaults)].map(
            ({ path: at, text }) => `${place((at ?? []).slice(1))}: ${text.replaceAll('workers.', '')}`,
          ),
        ]
  if (problems.length > 0 || !parsed.success) throw new LookupFailure('broken', joined(problems))
  const found = foundIn(parsed.data, defaults)
  if (found.length === 0)
    throw new LookupFailure('empty', `${path} lists no workers: expected the lists prefill and decode`)
  return found
}

/**
 * The same for a valid JSON file, many times faster, since no locations are needed. Undefined for any other
 * file; throws only if there are too many workers.
 */
export function readPlainJson(
  path: string,
  text: string,
  defaults: RankDefaults = {},
): DiscoveredWorker[] | undefined {
  if (!/^\s*\{/.test(text)) return undefined
  let value: unknown
  try {
    value = JSON.parse(text)
    // JSON.parse would hide a duplicate key, which is an error.
    if (JSON.stringify(value).replaceAll(/\s/g, '') !== text.replaceAll(/\s/g, '')) return undefined
  } catch {
    return undefined
  }
  refuseTooMany(path, value, defaults)
  const parsed = workerListsSchema.safeParse(value)
  if (!parsed.success || checked(value, defaults).next().done !== true) return undefined
  const found = foundIn(parsed.data, defaults)
  return found.length === 0 ? undefined : found
}

/** Runs first: a few bytes can expand to a thousand ranks. */
function refuseTooMany(path: string, value: unknown, defaults: RankDefaults): void {
  let count = 0
  for (const role of ['prefill', 'decode'] as const) {
    const items = isObject(value) ? value[role] : undefined
    if (!Array.isArray(items)) continue
    count += items.length
    if (count > MAX_DISCOVERED) break
    for (const item of items as readonly unknown[]) count += ranksOf(item, defaultRanks(defaults, role)) - 1
  }
  if (count > MAX_DISCOVERED)
    throw new LookupFailure(
      'broken',
      `${path} lists more than ${MAX_DISCOVERED} workers (counting each rank): list fewer, or split them among several gateways`,
    )
}

function ranksOf(item: unknown, defaultCount: number): number {
  const { ranks = defaultCount, dpRank, url = item } = isObject(item) ? item : {}
  if (dpRank !== undefined || /@\d+$/.test(String(url))) return 1
  // The schema reports invalid values.
  return Number.isInteger(ranks) && (ranks as number) >= 1 && (ranks as number) <= MAX_RANKS
    ? (ranks as number)
    : 1
}

function checked(value: unknown, defaults: RankDefaults) {
  return checkWorkers({ workers: { ...(isObject(value) && value), ...defaults } })
}

function foundIn(
  { prefill, decode }: z.infer<typeof workerListsSchema>,
  defaults: RankDefaults,
): DiscoveredWorker[] {
  return [
    ...prefill.flatMap(worker => ofServer(worker, 'prefill', defaults)),
    ...decode.flatMap(worker => ofServer(worker, 'decode', defaults)),
  ]
}

function ofServer(worker: string | WorkerForm, role: Role, defaults: RankDefaults): DiscoveredWorker[] {
  return workersOf(worker, defaultRanks(defaults, role)).map(one => {
    const { ranks: _, ...rest } = one
    return { ...rest, role, ready: true }
  })
}

function messagesOf(issue: z.core.$ZodIssue, path: Path, place: (path: Path) => string): string[] {
  if (issue.code === 'unrecognized_keys')
    return issue.keys.map(key => `${place(path)}: unknown key ${nameOf([...path, key])}`)
  // A worker is a URL or an object: report the problems of the variant that it resembles.
  const branch =
    issue.code === 'invalid_union'
      ? issue.errors.find(errors => errors.some(inner => inner.code !== 'invalid_type'))
      : undefined
  if (branch !== undefined)
    return branch.flatMap(inner => messagesOf(inner, [...path, ...(inner.path as Path)], place))
  const words = issue.code === 'invalid_union' ? 'expected a URL or an object with url' : issue.message
  return [`${place(path)}: ${nameOf(path) || 'the file'}: ${words}`]
}

function joined(problems: readonly string[]): string {
  const more = problems.length - MAX_PROBLEMS
  return [...problems.slice(0, MAX_PROBLEMS), ...(more > 0 ? [`and ${more} more`] : [])].join('; ')
}
