/** Turns schema issues into messages: where, what was expected, what was found. */
import type * as z from 'zod'
import { quoted } from '../../trace/quoted.ts'
import type { ConfigFile } from './config-file.ts'
import type { Override } from './flags/flag-values.ts'
import { allKeys, nodeAt, type SchemaNode, typeText } from './schema/json-schema.ts'
import { nearest } from './flags/nearest.ts'
import { isObject, nameOf, partsOf, type Path, valueAt } from './paths.ts'
import { longNameOf, SOURCES } from './flags/sources.ts'

type Issue = z.core.$ZodIssue

/** The merged configuration and where its values come from. */
export interface Input {
  readonly value: unknown
  readonly overrides: readonly Override[]
  readonly file?: ConfigFile
}

export interface Problem {
  readonly path: Path
  readonly line: string
}

export function problemsOf(issues: readonly Issue[], input: Input): Problem[] {
  return issues.flatMap(issue => problemsIn(issue, issue.path as Path, input))
}

function problemsIn(issue: Issue, path: Path, input: Input): Problem[] {
  const problem = (text: string, at = path, of?: 'key') => ({
    path: at,
    line: `${locationOf(at, input, of)}${text}`,
  })
  if (issue.code === 'unrecognized_keys')
    return issue.keys.map(key =>
      problem(`unknown key ${nameOf([...path, key])}${suggestion(path, key)}`, [...path, key], 'key'),
    )
  const value = valueAt(input.value, path)
  if (issue.code === 'invalid_union') {
    const branch = isObject(value) ? issue.errors.at(-1) : undefined
    if (branch) return branch.flatMap(inner => problemsIn(inner, [...path, ...(inner.path as Path)], input))
  }
  const name = nameOf(path) || 'the file'
  if (issue.code === 'custom') return [problem(`${name}: ${issue.message}`)]
  const node = nodeAt(path) ?? {}
  const override = overrideOf(path, input.overrides)
  const expected = node.type === 'string' && !node.enum ? issue.message : typeText(node, override?.unit)
  if (value === undefined) return [problem(`${name} is missing: expected ${expected}`)]
  return [problem(`${name}: expected ${expected}, found ${foundText(value, node, override)}`)]
}

/** Location followed by a colon, or empty. A missing key has the location of an override next to it. */
export function locationOf(path: Path, { value, overrides, file }: Input, of?: 'key'): string {
  const override = overrideOf(path, overrides)
  if (override !== undefined) return `${override.source}: `
  const missing = valueAt(value, path) === undefined
  const sibling = missing
    ? overrides.find(({ name }) => nameOf(path.slice(0, -1)) === partsOf(name).slice(0, -1).join('.'))
    : undefined
  if (sibling !== undefined) return `${sibling.source}: `
  return file === undefined ? '' : `${file.placeOf(path, of)}: `
}

/** The last one takes precedence: flags come after the environment. */
export function overrideOf(path: Path, overrides: readonly Override[]): Override | undefined {
  return overrides.findLast(({ name }) => partsOf(name).every((part, at) => part === path[at]))
}

/** Never repeats a secret. */
function foundText(value: unknown, node: SchemaNode, override: Override | undefined): string {
  if (node.writeOnly || node.items?.writeOnly)
    return typeof value === 'number' ? 'a number: put it in quotes' : 'an invalid value'
  if (override?.text !== undefined) return quoted(override.text)
  return typeof value === 'string' ? quoted(value) : kindOf(value)
}

function kindOf(value: unknown): string {
  if (value === null) return 'nothing'
  if (Array.isArray(value)) return 'a list'
  return typeof value === 'object' ? 'an object' : String(value)
}

/** Suggests a known key: in the same section, else anywhere, else by the name of its flag. */
function suggestion(path: Path, key: string): string {
  const sibling = nearest(key, allKeysAt(path))
  if (sibling !== undefined) return `: did you mean ${nameOf([...path, sibling])}?`
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
