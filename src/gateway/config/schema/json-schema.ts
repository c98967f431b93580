/** JSON Schema of the configuration file. Messages and the reference page use it. */
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

let cached: SchemaNode | undefined

/** Describes the file before defaults are applied. */
export function jsonSchema(): SchemaNode {
  return (cached ??= z.toJSONSchema(fileSchema.meta({ title: 'Configuration of eldr serve' }), {
    io: 'input',
  }) as SchemaNode)
}

export const sections = (): string[] => Object.keys(jsonSchema().properties ?? {})

/** Undefined for an unknown key. */
export function nodeAt(path: Path): SchemaNode | undefined {
  let node: SchemaNode | undefined = jsonSchema()
  for (const part of path) node = typeof part === 'number' ? node?.items : objectOf(node)?.properties?.[part]
  return node
}

/** The object form, for a value that may also be a URL. */
const objectOf = (node: SchemaNode | undefined) => node?.anyOf?.find(({ type }) => type === 'object') ?? node

/** All keys in the order of the schema. Keys of a list's objects are named like workers.decode[].url. */
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

/** Describes the valid values, as a phrase after “expected”. */
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
  const max = scaled(maximum ?? Infinity)
  return exclusiveMinimum === undefined
    ? `${what} from ${scaled(minimum ?? -Infinity)} to ${max}`
    : `${what} above ${scaled(exclusiveMinimum)}, at most ${max}`
}

/** Leaves out the second spelling of policy names. */
function choices(names: readonly string[]): string {
  const shown = names.filter(name => !(name.includes('-') && names.includes(name.replaceAll('-', '_'))))
  return shown.length === 1 ? shown[0]! : `one of ${shown.join(', ')}`
}
