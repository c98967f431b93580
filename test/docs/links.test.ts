/** Links between documents point to existing files and headings. */
import { existsSync, readFileSync, statSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { describe, expect, it } from 'vitest'
import type { Link } from './markdown.ts'
import { allPages, pageAt, ROOT } from './pages.ts'

const pages = new Map(allPages().map(name => [name, pageAt(name)]))
const links = [...pages].flatMap(([name, page]) => page.links.map(link => ({ name, link })))
const isOutside = ({ target }: Link) => /^[a-z]+:/.test(target)

/** The problem with a link, or undefined. */
function linkProblem(name: string, { target, isPicture }: Link): string | undefined {
  const [path = '', anchor] = decodeURI(target).split('#')
  const file = path === '' ? name : normalize(join(dirname(name), path))
  if (!existsSync(join(ROOT, file))) return 'no such file'
  if (isPicture) return statSync(join(ROOT, file)).size > 0 ? undefined : 'empty picture'
  if (anchor === undefined || !file.endsWith('.md')) return undefined
  return (pages.get(file) ?? pageAt(file)).anchors.has(anchor) ? undefined : 'no such heading'
}

describe('documents', () => {
  it('have links and pictures', () => {
    expect(links.length).toBeGreaterThan(100)
    expect(links.filter(({ link }) => link.isPicture).length).toBeGreaterThan(5)
  })

  it('link to existing files and headings', () => {
    const wrong = links
      .filter(({ link }) => !isOutside(link))
      .flatMap(({ name, link }) => {
        const problem = linkProblem(name, link)
        return problem === undefined ? [] : [`${name}:${link.line} ${link.target}: ${problem}`]
      })
    expect(wrong).toEqual([])
  })

  it('name only existing files of the repository', () => {
    const named =
      /`((?:src|test|python|scripts|bench|docs|profiles|dashboard)\/[\w./-]+\.(?:ts|tsx|mjs|py|md|json|wat|sh))`/g
    const found = [...pages.keys()].flatMap(name =>
      [...readFileSync(join(ROOT, name), 'utf8').matchAll(named)].map(([, file]) => ({ name, file: file! })),
    )
    expect(found.length).toBeGreaterThan(60)
    expect(
      found
        .filter(
          ({ name, file }) => !existsSync(join(ROOT, file)) && !existsSync(join(ROOT, dirname(name), file)),
        )
        .map(({ name, file }) => `${name}: ${file}`),
    ).toEqual([])
  })

  it('have one title each', () => {
    const titles = [...pages].map(
      ([name, { headings }]) => `${name} ${headings.filter(({ level }) => level === 1).length}`,
    )
    expect(titles.filter(line => !line.endsWith(' 1'))).toEqual([])
  })

  it('under docs/ do not link out of it, so that the static site has no dead links', () => {
    const leaving = links.filter(
      ({ name, link: { target } }) =>
        name.startsWith('docs/') &&
        !isOutside({ target } as Link) &&
        !join(dirname(name), target).startsWith('docs/'),
    )
    expect(leaving.map(({ name, link: { line, target } }) => `${name}:${line} ${target}`)).toEqual([])
  })

  it('under docs/ are all listed in the index', () => {
    const index = new Set(pages.get('docs/README.md')!.links.map(({ target }) => target.split('#')[0]))
    const known = [...pages.keys()].filter(name => name.startsWith('docs/') && name !== 'docs/README.md')
    expect(known.filter(name => !index.has(name.slice('docs/'.length)))).toEqual([])
  })
})
