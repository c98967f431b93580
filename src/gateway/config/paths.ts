/** Paths in the settings: as a list of keys and indexes, and as a name such as workers.decode[1].url. */
import type { Settings } from './settings.ts'

export type Path = readonly (string | number)[]

type Leaf = string | number | boolean | readonly unknown[]
type Under<T> = {
  [Key in keyof T & string]-?: NonNullable<T[Key]> extends Leaf ? Key : `${Key}.${Under<NonNullable<T[Key]>>}`
}[keyof T & string]

/** Names of all settings. A list is one setting. */
export type SettingName = Under<Settings>

export function nameOf(path: Path): string {
  return path.reduce<string>((name, part) => {
    if (typeof part === 'number') return `${name}[${part}]`
    return name === '' ? part : `${name}.${part}`
  }, '')
}

export const partsOf = (name: string): string[] => name.split('.')

export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

export function valueAt(root: unknown, path: Path): unknown {
  let value = root
  for (const part of path) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, part)) return undefined
    value = (value as Record<string | number, unknown>)[part]
  }
  return value
}

/**
 * Sets a value and creates missing parent objects. A parent that is not an object stays, so that the schema
 * reports it.
 */
export function putAt(root: Record<string, unknown>, path: readonly string[], value: unknown): void {
  let into = root
  for (const part of path.slice(0, -1)) {
    if (!Object.hasOwn(into, part)) into[part] = {}
    const next = into[part]
    if (!isObject(next)) return
    into = next
  }
  into[path.at(-1)!] = value
}

export function removeAt(root: Record<string, unknown>, path: readonly string[]): void {
  const from = valueAt(root, path.slice(0, -1))
  if (isObject(from)) delete from[path.at(-1)!]
}

/** All values under an object, with their paths. A list is one value. */
export function leavesOf(
  root: object,
  under: readonly string[] = [],
): { readonly path: readonly string[]; readonly value: unknown }[] {
  return Object.entries(root).flatMap(([key, value]: [string, unknown]) => {
    const path = [...under, key]
    if (value === undefined) return []
    return isObject(value) ? leavesOf(value, path) : [{ path, value }]
  })
}
