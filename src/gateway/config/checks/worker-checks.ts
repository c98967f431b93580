/**
 * Checks the worker lists before schema validation, so that one invalid worker does not hide problems of
 * others.
 */
import { isSamePlace, placeText, type Role } from '../../../cluster/worker.ts'
import type { Finding } from './checks.ts'
import { MAX_RANKS, workerUrlOf, workerUrlProblem } from '../origin.ts'
import { isObject, type Path, valueAt } from '../paths.ts'
import { defaultRanks, MAX_CLUSTER, workersOf } from '../worker-form.ts'

interface Worker {
  readonly path: Path
  readonly url: string
  readonly dpRank?: number
  readonly id: string
}

const ROLES = ['prefill', 'decode'] as const satisfies readonly Role[]

export function* checkWorkers(value: unknown): Generator<Finding> {
  for (const role of ROLES) yield* checkRanks(listOf(value, role), role)
  const workers = ROLES.flatMap(role =>
    listOf(value, role).flatMap((item, at) => expanded(item, ['workers', role, at], ranksOf(value, role))),
  )
  yield* samePlace(workers)
  yield* sameId(workers)
  yield* checkClusters(listOf(value, 'decode'), ranksOf(value, 'decode'))
}

function listOf(value: unknown, role: Role): readonly unknown[] {
  const items = valueAt(value, ['workers', role])
  return Array.isArray(items) ? items : []
}

/** The schema reports invalid values; they are ignored here. */
function ranksOf(value: unknown, role: Role): number {
  const count = (key: string) => countOf(valueAt(value, ['workers', key]))
  return defaultRanks(
    { ranks: count('ranks'), prefillRanks: count('prefillRanks'), decodeRanks: count('decodeRanks') },
    role,
  )
}

const isWhole = (value: unknown, min: number, max: number): value is number =>
  Number.isInteger(value) && (value as number) >= min && (value as number) <= max
const countOf = (value: unknown) => (isWhole(value, 1, MAX_RANKS) ? value : undefined)
const rankOf = (value: unknown) => (isWhole(value, 0, MAX_RANKS - 1) ? value : undefined)

/** The workers of a list item; none if the item is invalid by itself. */
function expanded(item: unknown, path: Path, ranks: number): Worker[] {
  const { url, id, dpRank, ranks: own } = isObject(item) ? item : { url: item }
  if (typeof url !== 'string' || workerUrlProblem(url) !== undefined) return []
  if (
    (dpRank !== undefined && rankOf(dpRank) === undefined) ||
    (own !== undefined && countOf(own) === undefined)
  )
    return []
  const form = {
    url,
    dpRank: rankOf(dpRank),
    ranks: countOf(own),
    id: typeof id === 'string' ? id : undefined,
  }
  return workersOf(form, ranks).map(worker => ({ ...worker, path }))
}

function* checkRanks(items: readonly unknown[], role: Role): Generator<Finding> {
  for (const [at, item] of items.entries()) {
    if (!isObject(item)) continue
    const { url, dpRank, ranks } = item
    const path = ['workers', role, at]
    const inUrl =
      typeof url === 'string' && workerUrlProblem(url) === undefined ? workerUrlOf(url).dpRank : undefined
    const rankKeys = [
      inUrl === undefined ? [] : 'a rank in its url',
      dpRank === undefined ? [] : 'dpRank',
      ranks === undefined ? [] : 'ranks',
    ].flat()
    if (rankKeys.length > 1)
      yield { path, text: `${placeIn({ path })} has ${rankKeys.join(' and ')}: set only one of them` }
  }
}

function* samePlace(workers: readonly Worker[]): Generator<Finding> {
  const byUrl = new Map<string, Worker[]>()
  const reported = new Set<Path>()
  for (const worker of workers) {
    const there = byUrl.get(worker.url) ?? []
    const first = there.find(other => isSamePlace(other, worker))
    byUrl.set(worker.url, there)
    there.push(worker)
    // Two items may share several ranks: reported once.
    if (first === undefined || reported.has(worker.path)) continue
    reported.add(worker.path)
    const both = [first, worker].map(placeIn).join(' and ')
    const text =
      first.dpRank === worker.dpRank
        ? `two workers with the url ${placeText(worker)}: ${both}`
        : `${worker.url} both with and without a rank: ${both}; without a rank it means the whole server`
    yield { path: worker.path, text }
  }
}

function* sameId(workers: readonly Worker[]): Generator<Finding> {
  const seen = new Map<string, Worker>()
  for (const worker of workers) {
    const first = seen.get(worker.id)
    if (first === undefined) seen.set(worker.id, worker)
    // The same address twice also means the same id twice: reported once.
    else if (!isSamePlace(first, worker))
      yield {
        path: worker.path,
        text: `two workers with the id ${worker.id}: ${[first, worker].map(placeIn).join(' and ')}`,
      }
  }
}

const placeIn = ({ path: [, role, at] }: Pick<Worker, 'path'>) => `workers.${role}[${at}]`

function* checkClusters(decode: readonly unknown[], ranks: number): Generator<Finding> {
  const clusters = decode.map(item => (isObject(item) ? item['cluster'] : undefined))
  const firstWithout = clusters.indexOf(undefined)
  if (firstWithout >= 0 && clusters.some(cluster => cluster !== undefined))
    yield {
      path: ['workers', 'decode', firstWithout],
      text: `workers.decode[${firstWithout}] has no cluster but others do: set it for all decode workers or for none`,
    }
  const taken = new Map<unknown, number>()
  for (const [at, cluster] of clusters.entries()) {
    if (cluster === undefined) continue
    const path = ['workers', 'decode', at]
    const more = typeof cluster === 'number' ? Math.max(1, expanded(decode[at], path, ranks).length) - 1 : 0
    const own = Array.from({ length: more + 1 }, (_, rank) =>
      more === 0 ? cluster : (cluster as number) + rank,
    )
    const twice = own.find(each => taken.has(each))
    if (twice !== undefined)
      yield {
        path,
        text: `cluster ${String(twice)} is used twice: workers.decode[${taken.get(twice)}] and workers.decode[${at}]`,
      }
    if (more > 0 && (own.at(-1) as number) > MAX_CLUSTER)
      yield {
        path,
        text: `workers.decode[${at}] needs clusters up to ${String(own.at(-1))}: the limit is ${MAX_CLUSTER}`,
      }
    for (const each of own) if (!taken.has(each)) taken.set(each, at)
  }
}
