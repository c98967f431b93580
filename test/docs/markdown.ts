/**
 * Reads a Markdown page for the tests: fenced blocks with the comment above each, headings with anchors,
 * links and pictures.
 *
 * A comment right above a block, invisible to readers, says what the tests do with it:
 *
 *   run                                    run this shell block, after those before it on the page
 *   run: fails with 2                      the same, and it must exit with that status
 *   run: in the background until "text"    the same; continue once the command has printed the text
 *   run by test/up/demo.test.ts            that test runs these commands
 *   not run: reason                        why it cannot be run
 *   expect                                 output of the block before it; any number matches any number
 *   file: eldr.yaml                        the block is the content of this file
 *
 * A comment that begins with `set up` contains commands for what a reader already has running.
 */
export interface Block {
  /** Line number of the fence, from 1. */
  readonly line: number
  readonly language: string
  readonly text: string
  readonly mark: string | undefined
}

export interface Page {
  readonly blocks: readonly Block[]
  readonly headings: readonly { readonly level: number; readonly text: string }[]
  readonly anchors: ReadonlySet<string>
  readonly links: readonly Link[]
}

export interface Link {
  readonly line: number
  readonly target: string
  readonly isPicture: boolean
}

/** Language of commands in a `set up` comment. */
export const SET_UP = 'set up'
const SHELLS = new Set(['sh', 'bash', 'shell', 'console', 'zsh'])

export const isShell = ({ language }: Block): boolean => SHELLS.has(language)

export function readPage(markdown: string): Page {
  const lines = markdown.split('\n')
  const blocks: Block[] = []
  const headings: { level: number; text: string }[] = []
  const links: Link[] = []
  const anchors = new Set<string>()
  let mark: string | undefined
  for (let at = 0; at < lines.length; at++) {
    const line = lines[at]!
    const [, indent, fence, info] = /^( *)(```+|~~~+)\s*(.*)$/.exec(line) ?? []
    if (fence !== undefined) {
      const end = lines.findIndex((other, place) => place > at && new RegExp(`^ *${fence}\\s*$`).test(other))
      if (end === -1) throw new Error(`line ${at + 1}: unterminated block`)
      const text = lines
        .slice(at + 1, end)
        .map(one => (one.startsWith(indent!) ? one.slice(indent!.length) : one))
        .join('\n')
      blocks.push({ line: at + 1, language: info!.split(/\s/)[0]!, text, mark })
      mark = undefined
      at = end
    } else if (/^ *<!--/.test(line)) {
      const end = lines.findIndex((other, place) => place >= at && other.includes('-->'))
      if (end === -1) throw new Error(`line ${at + 1}: unterminated comment`)
      const comment = lines
        .slice(at, end + 1)
        .join('\n')
        .replace(/^ *<!--\s*/, '')
        .replace(/\s*-->.*$/s, '')
      const [, commands] = /^set up\n(.*)$/s.exec(comment) ?? []
      if (commands !== undefined) blocks.push({ line: at + 1, language: SET_UP, text: commands, mark: 'run' })
      else mark = comment
      at = end
    } else {
      if (line.trim() !== '') mark = undefined
      const [, hashes, title] = /^(#{1,6}) (.*?)\s*#*$/.exec(line) ?? []
      if (title !== undefined) {
        headings.push({ level: hashes!.length, text: title })
        anchors.add(anchorOf(title, anchors))
      }
      for (const [, id] of line.matchAll(/<a id="([^"]+)">/g)) anchors.add(id!)
      const prose = line.replaceAll(/`[^`]*`/g, code => ' '.repeat(code.length))
      for (const [, bang, target] of prose.matchAll(/(!?)\[(?:[^\]]|\\\])*\]\(([^)\s]+)[^)]*\)/g))
        links.push({ line: at + 1, target: target!, isPicture: bang === '!' })
    }
  }
  return { blocks, headings, anchors, links }
}

/** As GitHub does: lower case, no punctuation, hyphens for spaces, a number if the anchor is taken. */
function anchorOf(title: string, taken: ReadonlySet<string>): string {
  const plain = title.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1').toLowerCase()
  const base = plain
    .replaceAll(/[^\p{L}\p{N}\p{M}\s_-]/gu, '')
    .trim()
    .replaceAll(/\s/g, '-')
  for (let again = 0; ; again++) {
    const anchor = again === 0 ? base : `${base}-${again}`
    if (!taken.has(anchor)) return anchor
  }
}

export type BlockMode =
  | { readonly kind: 'run'; readonly failsWith?: number; readonly until?: string }
  | { readonly kind: 'by'; readonly tests: readonly string[] }
  | { readonly kind: 'not'; readonly reason: string }
  | { readonly kind: 'expect' }
  | { readonly kind: 'file'; readonly name: string }

/** How a block is tested; undefined if no comment says so. */
export function modeOf({ mark }: Block): BlockMode | undefined {
  if (mark === undefined) return undefined
  if (mark === 'run') return { kind: 'run' }
  if (mark === 'expect') return { kind: 'expect' }
  const [, status] = /^run: fails with (\d+)$/.exec(mark) ?? []
  if (status !== undefined) return { kind: 'run', failsWith: Number(status) }
  const [, until] = /^run: in the background until "(.+)"$/.exec(mark) ?? []
  if (until !== undefined) return { kind: 'run', until }
  const [, tests] = /^run by (.+)$/.exec(mark) ?? []
  if (tests !== undefined) return { kind: 'by', tests: tests.split(/,\s*/) }
  const [, reason] = /^not run: (.+)$/s.exec(mark) ?? []
  if (reason !== undefined) return { kind: 'not', reason }
  const [, name] = /^file: (\S+)$/.exec(mark) ?? []
  return name === undefined ? undefined : { kind: 'file', name }
}

/** Our commands in a shell block: `demo` for `npx eldr demo`, `test:soak` for `npm run test:soak`. */
export function commandsOf({ text }: Block): string[] {
  const named = [...text.matchAll(/\b(?:eldr ([a-z]+)|npm (?:run )?([a-z:]+)|(vllm [a-z]+))/g)]
  return [...new Set(named.map(([, eldr, npm, other]) => eldr ?? npm ?? other!))]
}
