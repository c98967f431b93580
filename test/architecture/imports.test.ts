import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { describe, expect, it } from 'vitest'
import { filesReached, importsOf } from './imports.ts'

const seen = (text: string) => importsOf('flow/sink.ts', text).map(({ kind, target }) => [kind, target])

describe('importsOf', () => {
  it.each([
    ["import { a } from './a.ts'", 'static', './a.ts'],
    ["import {\n  a,\n  b,\n} from './a.ts'", 'static', './a.ts'],
    ['import a from "./a.ts"', 'static', './a.ts'],
    ["import './a.ts'", 'static', './a.ts'],
    ["import/* why */'./a.ts'", 'static', './a.ts'],
    ["import { type A } from './a.ts'", 'static', './a.ts'],
    ["import type { A } from './a.ts'", 'type', './a.ts'],
    ["import a = require('./a.ts')", 'static', './a.ts'],
    ["export { vllmNixl } from './vllm-nixl.ts'", 'static', './vllm-nixl.ts'],
    ["export * from './a.ts'", 'static', './a.ts'],
    ["export * as a from './a.ts'", 'static', './a.ts'],
    ["export type { A } from './a.ts'", 'type', './a.ts'],
    ["declare module './a.ts' {}", 'type', './a.ts'],
    ['type A = typeof import("./a.ts")', 'type', './a.ts'],
    ["let a: import('./a.ts').A", 'type', './a.ts'],
    ["void import('./a.ts')", 'dynamic', './a.ts'],
    ["void import(/* why */ '../control/admin/admin.ts')", 'dynamic', '../control/admin/admin.ts'],
    ["void import(\n  // why\n  './a.ts',\n)", 'dynamic', './a.ts'],
    ['void import(`./a.ts`)', 'dynamic', './a.ts'],
    ["require('./a.ts')", 'dynamic', './a.ts'],
    ["new URL('../scale/a.js', import.meta.url)", 'url', '../scale/a.js'],
    ["new URL(/* why */ '../scale/a.js', import.meta.url).href", 'url', '../scale/a.js'],
    ["import.meta.resolve('../scale/a.js')", 'url', '../scale/a.js'],
  ])('sees %s', (text, kind, target) => {
    expect(seen(text)).toEqual([[kind, target]])
  })

  it.each([
    ['import(variable)', 'dynamic'],
    ["import('../control/' + name)", 'dynamic'],
    ['import(`${folder}/a.ts`)', 'dynamic'],
    ["createRequire('/')", 'dynamic'],
    ['new URL(variable, import.meta.url)', 'url'],
    ["new URL('../scale/' + name, import.meta.url)", 'url'],
    ['const here = import.meta.url', 'url'],
    ['const { url } = import.meta', 'url'],
    ["new Url('../scale/a.js', import.meta.url)", 'url'],
    ["join(import.meta.dirname, '../scale/a.js')", 'url'],
    ["new URL('../scale/a.js', import.meta['url'])", 'url'],
  ])('gives no target for %s, whose path is computed', (text, kind) => {
    expect(seen(text)).toEqual([[kind, undefined]])
  })

  it('gives the beginning of a path that ends in a variable, and both paths of a condition', () => {
    const [begun] = importsOf('a.ts', 'new URL(`../app/${program}.js`, import.meta.url)')
    expect(begun).toMatchObject({ target: '../app/', isWhole: false })
    expect(seen("new URL(isBuilt ? './a.js' : './b.ts', import.meta.url)")).toEqual([
      ['url', './a.js'],
      ['url', './b.ts'],
    ])
  })

  it('sees nothing in comments, strings, other URLs and methods named import', () => {
    expect(
      seen(`
        // import './a.ts'
        const text = "import './a.ts'"
        const url = new URL('./a.ts', base)
        kv.import('./a.ts')
        const isBuilt = import.meta.url.endsWith('.js')
        export { text }
      `),
    ).toEqual([])
  })

  it('refuses a file that is not TypeScript', () => {
    expect(() => importsOf('a.ts', 'import from from')).toThrow('a.ts: ')
  })
})

describe('filesReached', () => {
  it('gives the source of a compiled file, and all files of a folder or of the beginning of a path', () => {
    const folder = mkdtempSync(join(tmpdir(), 'eldr-imports-'))
    try {
      mkdirSync(join(folder, 'app'))
      for (const name of ['app/owner.ts', 'app/relay.ts', 'thread.ts']) writeFileSync(join(folder, name), '')
      const reached = (text: string) =>
        importsOf('a.ts', text).flatMap(found =>
          filesReached(join(folder, 'a.ts'), found).map(file => relative(folder, file)),
        )
      expect(reached("new URL('./thread.js', import.meta.url)")).toEqual(['thread.ts'])
      expect(reached("new URL('./app/', import.meta.url)").toSorted()).toEqual([
        'app/owner.ts',
        'app/relay.ts',
      ])
      expect(reached('new URL(`./app/${name}.js`, import.meta.url)')).toHaveLength(2)
      expect(reached('new URL(`./app/ow${name}.js`, import.meta.url)')).toEqual(['app/owner.ts'])
      expect(reached('new URL(`./${name}.js`, import.meta.url)')).toHaveLength(3)
    } finally {
      rmSync(folder, { recursive: true })
    }
  })
})
