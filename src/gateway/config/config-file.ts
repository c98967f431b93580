/**
 * Reads a YAML configuration file with the line and column of every value. JSON is valid YAML, so it has them
 * too.
 */
import { readFile } from 'node:fs/promises'
import { type Document, isAlias, isMap, isScalar, isSeq, LineCounter, type Node, parseDocument } from 'yaml'
import { EldrError } from '../../errors.ts'
import { isObject, type Path } from './paths.ts'
import { sections } from './schema/json-schema.ts'

export interface ConfigFile {
  readonly path: string
  /** Not validated yet. */
  readonly value: unknown
  /** Syntax errors with their locations. If there are any, `value` is meaningless. */
  readonly problems: readonly string[]
  /** FILE:LINE:COLUMN of a value or its key; of the closest enclosing value if it does not exist. */
  placeOf(path: Path, of?: 'value' | 'key'): string
}

export async function readConfigFile(path: string): Promise<ConfigFile> {
  let text: string
  try {
    text = await readFile(path, 'utf8')
  } catch (cause) {
    throw new EldrError('ELDR_FILE_UNREADABLE', { file: path, cause })
  }
  return parseConfigText(path, text)
}

export function parseConfigText(path: string, text: string): ConfigFile {
  const lineCounter = new LineCounter()
  const document = parseDocument(text, { lineCounter, prettyErrors: false, stringKeys: true })
  const place = (offset: number) => {
    const { line, col } = lineCounter.linePos(offset)
    return `${path}:${Math.max(1, line)}:${Math.max(1, col)}`
  }
  const problems = [...document.errors, ...document.warnings].map(
    ({ message, pos }) => `${place(pos[0])}: ${withoutSource(message)}`,
  )
  let value: unknown
  try {
    value = withoutEmptySections(document.toJS())
  } catch {
    // The library's message contains the name, which may be part of a secret.
    problems.push(`${path}: unresolved alias (*name)`)
  }
  return { path, value, problems, placeOf: (at, of = 'value') => place(offsetOf(document, at, of)) }
}

/** Removes the text after a colon: the library repeats the input there, which may be a secret. */
const withoutSource = (message: string) => message.split(/: |; please/)[0]!

/** A section whose keys are all commented out counts as absent, as does an empty file. */
function withoutEmptySections(value: unknown): unknown {
  if (value === null || value === undefined) return {}
  if (!isObject(value)) return value
  return Object.fromEntries(
    Object.entries(value).filter(([key, section]) => section !== null || !sections().includes(key)),
  )
}

function offsetOf(document: Document, path: Path, of: 'value' | 'key'): number {
  let node: unknown = document.contents
  let offset = startOf(node) ?? 0
  for (const [depth, part] of path.entries()) {
    const within = isAlias(node) ? node.resolve(document) : node
    if (isMap(within)) {
      const pair = within.items.find(({ key }) => isScalar(key) && key.value === part)
      if (pair === undefined) break
      const [key, value] = [startOf(pair.key), startOf(pair.value)]
      offset = (of === 'key' && depth === path.length - 1 ? key : (value ?? key)) ?? offset
      node = pair.value
    } else if (isSeq(within) && typeof part === 'number' && part < within.items.length) {
      node = within.items[part]
      offset = startOf(node) ?? offset
    } else break
  }
  return offset
}

const startOf = (node: unknown): number | undefined => (node as Node | null)?.range?.[0]
