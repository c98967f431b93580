/** Prints settings with secrets masked: as YAML with the origin of each value in a comment, and as JSON. */
import { Document, isCollection, isNode, type Node } from 'yaml'
import type { Loaded } from './load.ts'
import { masked } from './mask.ts'
import { partsOf } from './paths.ts'

export function asYaml({ settings, origins }: Pick<Loaded, 'settings' | 'origins'>): string {
  const document = new Document(masked(settings))
  for (const [name, { name: from }] of origins) {
    const node = document.getIn(partsOf(name), true)
    if (isNode(node)) addComment(node, ` ${from}`)
  }
  return document.toString({ lineWidth: 0 })
}

/** After the value; before a non-empty list, which begins on the next line. */
function addComment(node: Node, text: string): void {
  const isList = isCollection(node)
  if (isList && node.items.length > 0) {
    node.commentBefore = text
    return
  }
  if (isList) node.flow = true
  node.comment = text
}

export function asJson({ settings, origins }: Pick<Loaded, 'settings' | 'origins'>): {
  readonly settings: unknown
  readonly origins: Readonly<Record<string, { readonly kind: string; readonly name: string }>>
} {
  return { settings: masked(settings), origins: Object.fromEntries(origins) }
}
