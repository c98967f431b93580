/** What the schema finds wrong, in words: where it stands, what was expected, what was found; all of it at once. */
import type * as z from 'zod'
import { quoted } from '../../trace/quoted.ts'
import type { ConfigFile } from './config-file.ts'
import type { Given } from './flags/flag-values.ts'
import { allKeys, nodeAt, type SchemaNode, typeText } from './schema/json-schema.ts'
import { nearest } from './flags/nearest.ts'
import { isObject, nameOf, partsOf, type Path, valueAt } from './paths.ts'
import { longNameOf, SOURCES } from './flags/sources.ts'

type Issue = z.core.$ZodIssue

/** The value that was looked at and where its parts came from. */
export interface Looked {
  readonly value: unknown
  readonly given: readonly Given[]
  readonly file?: ConfigFile
}

export interface Problem {
  readonly path: Path
  readonly line: string
}

export function problemsOf(issues: readonly Issue[], looked: Looked): Problem[] {
  return issues.flatMap(issue => problemsIn(issue, issue.path as Path, looked))
}

function problemsIn(issue: Issue, path: Path, looked: Looked): Problem[] {
  const problem = (text: string, at = path, of?: 'key') => ({
    path: at,
    line: `${whereIs(at, looked, of)}${text}`,
  })
  if (issue.code === 'unrecognized_keys')
    return issue.keys.map(key =>
      problem(`unknown key ${nameOf([...path, key])}${meant(path, key)}`, [...path, key], 'key'),
    )
  const value = valueAt(looked.value, path)
  if (issue.code === 'invalid_union') {
    const branch = isObject(value) ? issue.errors.at(-1) : undefined
    if (branch) return branch.flatMap(inner => problemsIn(inner, [...path, ...(inner.path as Path)], looked))
  }
  const name = nameOf(path) || 'the file'
  if (issue.code === 'custom') return [problem(`${name}: ${issue.message}`)]
  const node = nodeAt(path) ?? {}
  const source = sourceOf(path, looked.given)
  const expected = node.type === 'string' && !node.enum ? issue.message : typeText(node, source?.unit)
  if (value === undefined) return [problem(`${name} is missing: expected ${expected}`)]
  return [problem(`${name}: expected ${expected}, found ${foundText(value, node, source)}`)]
}

/** Ends in a colon; empty when nobody gave it. A key that is missing is missing beside its neighbours. */
export function whereIs(path: Path, { value, given, file }: Looked, of?: 'key'): string {
  const source = sourceOf(path, given)
  if (source !== undefined) return `${source.by}: `
  const missing = valueAt(value, path) === undefined
  const beside = missing
    ? given.find(({ name }) => nameOf(path.slice(0, -1)) === partsOf(name).slice(0, -1).join('.'))
    : undefined
  if (beside !== undefined) return `${beside.by}: `
  return file === undefined ? '' : `${file.placeOf(path, of)}: `
}

/** Flags come last and win. */
export function sourceOf(path: Path, given: readonly Given[]): Given | undefined {
  return given.findLast(({ name }) => partsOf(name).every((part, at) => part === path[at]))
}

/** A secret is not repeated, whatever is wrong with it. */
function foundText(value: unknown, node: SchemaNode, source: Given | undefined): string {
  if (node.writeOnly || node.items?.writeOnly)
    return typeof value === 'number' ? 'a number: put it in quotes' : 'something else'
  if (source?.typed !== undefined) return quoted(source.typed)
  return typeof value === 'string' ? quoted(value) : kindOf(value)
}

function kindOf(value: unknown): string {
  if (value === null) return 'nothing'
  if (Array.isArray(value)) return 'a list'
  return typeof value === 'object' ? 'an object' : String(value)
}

/** The known key that somebody meant: beside it, else anywhere, also by the name of its flag. */
function meant(path: Path, key: string): string {
  const beside = nearest(key, allKeysAt(path))
  if (beside !== undefined) return `: did you mean ${nameOf([...path, beside])}?`
  const anywhere = new Map<string, string>()
  for (const { flag, name } of SOURCES) if (flag !== undefined) anywhere.set(longNameOf(flag).slice(2), name)
  for (const { name } of allKeys().toReversed()) anywhere.set(name.slice(name.lastIndexOf('.') + 1), name)
  const near = nearest(key, [...anywhere.keys()])
  return near === undefined ? '' : `: did you mean ${anywhere.get(near)}?`
}

function allKeysAt(path: Path): string[] {
  const node = nodeAt(path)
  return Object.keys((node?.anyOf?.find(({ type }) => type === 'object') ?? node)?.properties ?? {})
}
