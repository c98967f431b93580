/**
 * Comparisons with the names of policies, read from the syntax tree of a source file. A list of names that is
 * only run through, and a table of values by name, are no comparisons.
 */
import { parseSync, Visitor } from 'rolldown/utils'

type Visited = NonNullable<ConstructorParameters<typeof Visitor>[0]>
type Expression = Parameters<NonNullable<Visited['ParenthesizedExpression']>>[0]['expression']
type Element = Parameters<NonNullable<Visited['ArrayExpression']>>[0]['elements'][number]

const EQUALITY = new Set(['==', '===', '!=', '!=='])
/** Methods that ask whether a name is one of several, or is this one. */
const ASKS = new Set(['includes', 'indexOf', 'lastIndexOf', 'has', 'startsWith', 'endsWith', 'localeCompare'])

/** The source text of each comparison. */
export function comparedNames(file: string, text: string, names: readonly string[]): string[] {
  const { program, errors } = parseSync(file, text)
  if (errors.length > 0) throw new Error(`${file}: ${errors[0]!.message}`)
  const isWord = new RegExp(`\\b(?:${names.join('|')})\\b`)
  const found: string[] = []
  const add = ({ start, end }: { start: number; end: number }) => void found.push(text.slice(start, end))
  /** Lists, sets and tables with names, by the variable that has them. */
  const variables = new Map<string, Expression>()

  const isName = (node: Element): boolean => {
    const inner = bare(node)
    if (inner?.type === 'TemplateLiteral')
      return inner.expressions.length === 0 && names.includes(inner.quasis[0]!.value.cooked ?? '')
    return inner?.type === 'Literal' && typeof inner.value === 'string' && names.includes(inner.value)
  }
  const hasName = (node: Element): boolean => {
    const inner = bare(node)
    switch (inner?.type) {
      case 'ArrayExpression':
        return inner.elements.some(element => isName(element) || hasName(element))
      case 'NewExpression':
        return inner.arguments.some(hasName)
      case 'ObjectExpression':
        return inner.properties.some(
          ({ type, ...rest }) =>
            type === 'Property' &&
            'key' in rest &&
            (rest.key.type === 'Identifier'
              ? !rest.computed && names.includes(rest.key.name)
              : rest.key.type === 'Literal' && names.includes(String(rest.key.value))),
        )
      case 'Identifier':
        return variables.has(inner.name)
      default:
        return false
    }
  }

  new Visitor({
    VariableDeclarator: ({ id, init }) => {
      if (id.type === 'Identifier' && init !== null && hasName(init)) variables.set(id.name, init)
    },
  }).visit(program)
  new Visitor({
    BinaryExpression: node => {
      const { operator, left, right } = node
      if (EQUALITY.has(operator) && (isName(left) || isName(right))) add(node)
      if (operator === 'in' && hasName(right)) add(node)
    },
    SwitchCase: ({ test }) => {
      if (test !== null && isName(test)) add(test)
    },
    CallExpression: node => {
      const callee = node.callee
      if (callee.type !== 'MemberExpression' || callee.computed || !ASKS.has(callee.property.name)) return
      if (hasName(callee.object) || node.arguments.some(isName)) add(node)
    },
    MemberExpression: node => {
      if (node.computed && bare(node.object)?.type === 'ObjectExpression' && hasName(node.object)) add(node)
    },
    Literal: node => {
      if ('regex' in node && isWord.test(node.regex.pattern)) add(node)
    },
  }).visit(program)
  return found
}

/** An expression without parentheses, `as` and `satisfies`. */
function bare(node: Element): Element {
  switch (node?.type) {
    case 'ParenthesizedExpression':
    case 'TSAsExpression':
    case 'TSSatisfiesExpression':
    case 'TSNonNullExpression':
      return bare(node.expression)
    case 'SpreadElement':
      return bare(node.argument)
    default:
      return node
  }
}
