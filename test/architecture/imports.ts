/**
 * Which files a source file refers to, read from its syntax tree: imports and re-exports (also of types),
 * `import()`, `require()` and `new URL(…, import.meta.url)`, by which threads and processes are started.
 * A reference whose path cannot be read from the source has no target, and the tests forbid it.
 */
import { existsSync, readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { parseSync, Visitor } from 'rolldown/utils'

export interface Import {
  /** `static` runs when the file is loaded, `dynamic` later, `url` in a thread or process, `type` never. */
  readonly kind: 'static' | 'type' | 'dynamic' | 'url'
  /** The path or package as written, or its beginning up to the first `${`; undefined if it is computed. */
  readonly target: string | undefined
  /** Whether `target` is all of it. */
  readonly isWhole: boolean
  /** The source text. */
  readonly text: string
}

type Visited = NonNullable<ConstructorParameters<typeof Visitor>[0]>
type Expression = Parameters<NonNullable<Visited['ParenthesizedExpression']>>[0]['expression']
type Argument = Parameters<NonNullable<Visited['NewExpression']>>[0]['arguments'][number]

/** Methods of `import.meta.url` that tell whether a file is compiled: they load nothing. */
const READS_EXTENSION = new Set(['endsWith', 'lastIndexOf', 'slice'])

export function importsOf(file: string, text: string): Import[] {
  const { program, errors } = parseSync(file, text)
  if (errors.length > 0) throw new Error(`${file}: ${errors[0]!.message}`)
  const found: Import[] = []
  const add = (kind: Import['kind'], path: Argument | undefined, node: { start: number; end: number }) => {
    for (const target of path === undefined ? [undefined] : targetsOf(path))
      found.push({
        kind,
        target: target?.path,
        isWhole: target?.isWhole ?? false,
        text: text.slice(node.start, node.end),
      })
  }
  /** Where `import.meta` stands in an expression that is understood. */
  const understood = new Set<number>()

  new Visitor({
    ImportDeclaration: node => add(node.importKind === 'type' ? 'type' : 'static', node.source, node),
    ExportAllDeclaration: node => add(node.exportKind === 'type' ? 'type' : 'static', node.source, node),
    ExportNamedDeclaration: node => {
      if (node.source !== null) add(node.exportKind === 'type' ? 'type' : 'static', node.source, node)
    },
    TSImportEqualsDeclaration: node => {
      if (node.moduleReference.type === 'TSExternalModuleReference')
        add(node.importKind === 'type' ? 'type' : 'static', node.moduleReference.expression, node)
    },
    TSImportType: node => add('type', node.source, node),
    TSModuleDeclaration: node => {
      if (node.id.type === 'Literal') add('type', node.id, node)
    },
    ImportExpression: node => add('dynamic', node.source, node),
    NewExpression: node => {
      const [path, base] = node.arguments
      if (!isNamed(node.callee, 'URL') || base === undefined || !isMeta(base, 'url')) return
      understood.add(base.start)
      add('url', path, node)
    },
    CallExpression: node => {
      if (isNamed(node.callee, 'createRequire')) add('dynamic', undefined, node)
      else if (isNamed(node.callee, 'require')) add('dynamic', node.arguments[0], node)
      else if (isMeta(node.callee, 'resolve')) {
        understood.add(node.callee.start)
        add('url', node.arguments[0], node)
      }
    },
    MemberExpression: node => {
      if (isMeta(node.object, 'url') && !node.computed && READS_EXTENSION.has(node.property.name))
        understood.add(node.start)
    },
    MetaProperty: node => {
      if (node.meta.name === 'import' && !understood.has(node.start)) add('url', undefined, node)
    },
  }).visit(program)
  return found
}

const isNamed = (node: Expression, name: string): boolean => node.type === 'Identifier' && node.name === name

const isMeta = (node: Argument, property: string): boolean =>
  node.type === 'MemberExpression' &&
  node.object.type === 'MetaProperty' &&
  !node.computed &&
  node.property.name === property

/** The paths that an expression may have; undefined for one that is computed. */
function targetsOf(node: Argument): ({ path: string; isWhole: boolean } | undefined)[] {
  switch (node.type) {
    case 'Literal':
      return [typeof node.value === 'string' ? { path: node.value, isWhole: true } : undefined]
    case 'TemplateLiteral': {
      const path = node.quasis[0]!.value.cooked ?? ''
      return [path === '' ? undefined : { path, isWhole: node.expressions.length === 0 }]
    }
    case 'ConditionalExpression':
      return [...targetsOf(node.consequent), ...targetsOf(node.alternate)]
    case 'ParenthesizedExpression':
    case 'TSAsExpression':
      return targetsOf(node.expression)
    default:
      return [undefined]
  }
}

export const isLocal = ({ target }: Import): boolean => target?.startsWith('.') ?? false

/** The files that a local import of `file` may reach: a folder or the beginning of a path reaches several. */
export function filesReached(file: string, { target, isWhole }: Import): string[] {
  const path = join(file, '..', target!)
  if (!isWhole)
    return filesUnder(path.endsWith('/') ? path : join(path, '..')).filter(name => name.startsWith(path))
  if (existsSync(path)) return statSync(path).isDirectory() ? filesUnder(path) : [path]
  // Threads and processes run compiled files.
  return [path.replace(/\.js$/, '.ts')]
}

export function filesUnder(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap(entry =>
    entry.isDirectory() ? filesUnder(join(folder, entry.name)) : [join(folder, entry.name)],
  )
}
