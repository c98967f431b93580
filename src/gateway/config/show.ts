/** Settings for people to read, secrets masked: YAML that a file could hold, with where each value came from beside it. */
import { Document, isCollection, isNode, type Node } from 'yaml'
import type { Loaded } from './load.ts'
import { masked } from './mask.ts'
import { partsOf } from './paths.ts'

export function asYaml({ settings, origins }: Pick<Loaded, 'settings' | 'origins'>): string {
  const document = new Document(masked(settings))
  for (const [name, { name: from }] of origins) {
    const node = document.getIn(partsOf(name), true)
    if (isNode(node)) remark(node, ` ${from}`)
  }
  return document.toString({ lineWidth: 0 })
}

/** Behind a value; a list that is not empty begins on the next line, and so does its remark. */
function remark(node: Node, text: string): void {
  const isList = isCollection(node)
  if (isList && node.items.length > 0) {
    node.commentBefore = text
    return
  }
  if (isList) node.flow = true
  node.comment = text
}

/** The same for programs. */
export function asJson({ settings, origins }: Pick<Loaded, 'settings' | 'origins'>): {
  readonly settings: unknown
  readonly origins: Readonly<Record<string, { readonly kind: string; readonly name: string }>>
} {
  return { settings: masked(settings), origins: Object.fromEntries(origins) }
}
