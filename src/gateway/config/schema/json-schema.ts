/** The JSON Schema of the configuration file, and what it says about one key: messages and the reference page go by it. */
import * as z from 'zod'
import type { Path } from '../paths.ts'
import { fileSchema } from './schema.ts'

export interface SchemaNode {
  readonly type?: string
  readonly format?: string
  readonly description?: string
  readonly default?: unknown
  readonly writeOnly?: boolean
  readonly enum?: readonly string[]
  readonly minimum?: number
  readonly maximum?: number
  readonly exclusiveMinimum?: number
  readonly properties?: Readonly<Record<string, SchemaNode>>
  readonly items?: SchemaNode
  readonly anyOf?: readonly SchemaNode[]
}

let made: SchemaNode | undefined

/** Of what a file may hold, before defaults. */
export function jsonSchema(): SchemaNode {
  return (made ??= z.toJSONSchema(fileSchema.meta({ title: 'Configuration of eldr serve' }), {
    io: 'input',
  }) as SchemaNode)
}

export const sections = (): string[] => Object.keys(jsonSchema().properties ?? {})

/** Undefined where a file has no such key. */
export function nodeAt(path: Path): SchemaNode | undefined {
  let node: SchemaNode | undefined = jsonSchema()
  for (const part of path) node = typeof part === 'number' ? node?.items : objectOf(node)?.properties?.[part]
  return node
}

/** A worker may be a URL or an object. */
const objectOf = (node: SchemaNode | undefined) => node?.anyOf?.find(({ type }) => type === 'object') ?? node

/** Every key by its name, in the order of the file; those of a list's objects as workers.decode[].url. */
export function allKeys(
  node = jsonSchema(),
  under = '',
): { readonly name: string; readonly node: SchemaNode }[] {
  return Object.entries(node.properties ?? {}).flatMap(([key, child]) => {
    const name = under === '' ? key : `${under}.${key}`
    const item = objectOf(child.items)
    return [{ name, node: child }, ...(item?.properties ? allKeys(item, `${name}[]`) : allKeys(child, name))]
  })
}

/** What a value must be, as a phrase after “expected”. */
export function typeText(node: SchemaNode, unit?: 'seconds'): string {
  if (node.enum) return choices(node.enum)
  if (node.anyOf) return node.anyOf.map(each => typeText(each)).join(', or ')
  if (node.type === 'integer' || node.type === 'number') return rangeText(node, unit)
  if (node.type === 'boolean') return 'true or false'
  if (node.type === 'array') return node.items ? `a list, each ${typeText(node.items)}` : 'a list'
  if (node.type === 'object') return `an object with ${Object.keys(node.properties ?? {}).join(', ')}`
  return node.format === 'uri' ? 'a URL' : 'text'
}

function rangeText(
  { type, minimum, maximum, exclusiveMinimum }: SchemaNode,
  unit: 'seconds' | undefined,
): string {
  const scaled = (value: number) => (unit === undefined ? value : value / 1000)
  const what =
    unit === undefined ? (type === 'integer' ? 'a whole number' : 'a number') : `a number of ${unit}`
  const most = scaled(maximum ?? Infinity)
  return exclusiveMinimum === undefined
    ? `${what} from ${scaled(minimum ?? -Infinity)} to ${most}`
    : `${what} above ${scaled(exclusiveMinimum)}, at most ${most}`
}

/** Both spellings of a policy are taken; one is enough to say. */
function choices(names: readonly string[]): string {
  const said = names.filter(name => !(name.includes('-') && names.includes(name.replaceAll('-', '_'))))
  return said.length === 1 ? said[0]! : `one of ${said.join(', ')}`
}
