/** A configuration file as a value, with the line and column of everything in it. JSON is read as the YAML that it is, so it has them too. */
import { readFile } from 'node:fs/promises'
import { type Document, isAlias, isMap, isScalar, isSeq, LineCounter, type Node, parseDocument } from 'yaml'
import { EldrError } from '../../errors.ts'
import { isObject, type Path } from './paths.ts'
import { sections } from './schema/json-schema.ts'

export interface ConfigFile {
  readonly path: string
  /** Not looked at yet: it may be anything. */
  readonly value: unknown
  /** Of the spelling, each with its place; then the value means nothing. */
  readonly problems: readonly string[]
  /** FILE:LINE:COLUMN of a value, or of the key that it stands under; of the nearest thing around it when it is not there. */
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
    problems.push(`${path}: an alias (*name) that cannot be resolved`) // the library would name it, and it may be part of a secret
  }
  return { path, value, problems, placeOf: (at, of = 'value') => place(offsetOf(document, at, of)) }
}

/** After a colon the library repeats what it found, which may be a secret. */
const withoutSource = (message: string) => message.split(/: |; please/)[0]!

/** A section whose keys are all commented out, and a file without any, are not there. */
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
