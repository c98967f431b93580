/** The file that discovery follows: lists of workers as the configuration has them, refused whole when anything in it is wrong. */
import type * as z from 'zod'
import type { Role } from '../../cluster/worker.ts'
import { parseConfigText } from '../config/config-file.ts'
import { isObject, nameOf, type Path } from '../config/paths.ts'
import { workerListsSchema } from '../config/schema.ts'
import { checkWorkers } from '../config/worker-checks.ts'
import { defaultRanks, type RankDefaults, type WorkerForm, workersOf } from '../config/worker-form.ts'
import { type Found, LookFailure } from './found.ts'

/** Problems that are told of one file. */
const MOST_TOLD = 5

/** `defaults`: of servers of which the file says nothing. Throws a LookFailure with what is wrong and where. */
export function readWorkerFile(path: string, text: string, defaults: RankDefaults = {}): Found[] {
  const file = parseConfigText(path, text)
  const parsed = workerListsSchema.safeParse(file.value)
  const place = (at: Path) => file.placeOf(at)
  const problems =
    file.problems.length > 0
      ? [...file.problems]
      : [
          ...(parsed.error?.issues ?? []).flatMap(issue => wordsOf(issue, issue.path as Path, place)),
          ...[...checkWorkers({ workers: { ...(isObject(file.value) && file.value), ...defaults } })].map(({ path: at, text }) => `${place((at ?? []).slice(1))}: ${text.replaceAll('workers.', '')}`), // prettier-ignore
        ]
  if (problems.length > 0 || !parsed.success) throw new LookFailure('broken', told(problems))
  const { prefill, decode } = parsed.data
  if (prefill.length + decode.length === 0) throw new LookFailure('empty', `${path} names no worker: expected the lists prefill and decode`)
  return [
    ...prefill.flatMap(worker => foundIn(worker, 'prefill', defaults)),
    ...decode.flatMap(worker => foundIn(worker, 'decode', defaults)),
  ]
}

function foundIn(worker: string | WorkerForm, role: Role, defaults: RankDefaults): Found[] {
  return workersOf(worker, defaultRanks(defaults, role)).map(one => {
    const { ranks: _, ...rest } = one
    return { ...rest, role, ready: true }
  })
}

function wordsOf(issue: z.core.$ZodIssue, path: Path, place: (path: Path) => string): string[] {
  if (issue.code === 'unrecognized_keys') return issue.keys.map(key => `${place(path)}: unknown key ${nameOf([...path, key])}`)
  // A worker is a URL or an object: what is wrong with the one that it looks like is the last.
  const branch =
    issue.code === 'invalid_union' ? issue.errors.find(errors => errors.some(inner => inner.code !== 'invalid_type')) : undefined
  if (branch !== undefined) return branch.flatMap(inner => wordsOf(inner, [...path, ...(inner.path as Path)], place))
  const words = issue.code === 'invalid_union' ? 'expected a URL or an object with url' : issue.message
  return [`${place(path)}: ${nameOf(path) || 'the file'}: ${words}`]
}

function told(problems: readonly string[]): string {
  const more = problems.length - MOST_TOLD
  return [...problems.slice(0, MOST_TOLD), ...(more > 0 ? [`and ${more} more`] : [])].join('; ')
}
