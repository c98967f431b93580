/**
 * Parses a page or a chart more strictly than an XML parser: tags balance, attributes are quoted and not
 * repeated, every `&` begins an entity, no stray `<` or `>`, ids are unique and references resolve. Returns
 * elements in document order.
 */
export interface Parsed {
  readonly name: string
  readonly attributes: Readonly<Record<string, string>>
  /** Own text without that of child elements, with entities resolved. */
  text: string
}

const TAG = /<([A-Za-z][\w-]*)((?:\s+[\w:-]+="[^"<>]*")*)\s*(\/?)>/y
const END = /<\/([A-Za-z][\w-]*)>/y
const TEXT = /[^<>]+/y
const ENTITIES: Readonly<Record<string, string>> = {
  '&amp;': '&',
  '&lt;': '<',
  '&gt;': '>',
  '&quot;': '"',
  '&#39;': "'",
}

export function parse(markup: string): readonly Parsed[] {
  const found: Parsed[] = []
  const open: Parsed[] = []
  let at = /^<!doctype html>\n/.exec(markup)?.[0].length ?? 0
  const take = (pattern: RegExp) => {
    pattern.lastIndex = at
    const match = pattern.exec(markup)
    if (match !== null) at += match[0].length
    return match
  }
  while (at < markup.length) {
    const end = take(END)
    if (end !== null) {
      const last = open.pop()
      if (last?.name !== end[1]) throw new Error(`</${end[1]}> closes <${last?.name}> at ${at}`)
      continue
    }
    const tag = take(TAG)
    if (tag !== null) {
      const one: Parsed = { name: tag[1]!, attributes: attributesOf(tag[2]!), text: '' }
      found.push(one)
      if (tag[3] === '/') continue
      open.push(one)
      if (one.name === 'style') at = markup.indexOf('</style>', at) // CSS, where > is not a tag
      continue
    }
    const text = take(TEXT)
    if (text === null) throw new Error(`stray character at ${at}: ${markup.slice(at, at + 60)}`)
    const inside = open.at(-1)
    if (inside !== undefined) inside.text += resolved(text[0])
    else if (text[0].trim() !== '') throw new Error(`text outside of all elements: ${text[0]}`)
  }
  if (open.length > 0) throw new Error(`<${open.at(-1)!.name}> is never closed`)
  checkIds(found)
  return found
}

function attributesOf(source: string): Record<string, string> {
  const attributes: Record<string, string> = {}
  for (const [, name, value] of source.matchAll(/([\w:-]+)="([^"]*)"/g)) {
    if (Object.hasOwn(attributes, name!)) throw new Error(`${name} is given twice`)
    attributes[name!] = resolved(value!)
  }
  return attributes
}

function resolved(text: string): string {
  return text.replace(/&[^;]*;?/g, entity => {
    const character = ENTITIES[entity]
    if (character === undefined) throw new Error(`not an entity: ${entity}`)
    return character
  })
}

function checkIds(elements: readonly Parsed[]): void {
  const ids = elements.flatMap(({ attributes }) => attributes['id'] ?? [])
  const twice = ids.find((id, at) => ids.indexOf(id) !== at)
  if (twice !== undefined) throw new Error(`id ${twice} is used twice`)
  for (const { attributes } of elements) {
    for (const name of ['aria-labelledby', 'aria-describedby']) {
      const id = attributes[name]
      if (id !== undefined && !ids.includes(id))
        throw new Error(`${name} refers to ${id}, which is not there`)
    }
  }
}

/** Texts and attributes with a broken number. */
export function brokenNumbers(elements: readonly Parsed[]): readonly string[] {
  const strings = elements
    .filter(({ name }) => name !== 'style')
    .flatMap(({ text, attributes }) => [text, ...Object.values(attributes)])
  return strings.filter(string =>
    /NaN|undefined|Infinity|\[object|\bnull\b|(?<![\w-])-0(?![\d.])/.test(string),
  )
}
