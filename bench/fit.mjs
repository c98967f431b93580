// Benchmarks of the fit and its numeric parts against NumPy/SciPy and plain JavaScript. Prints tables as it
// runs.
//
//   node bench/fit.mjs [--quick] [--only lab16,growth] [--seed 1] [--json FILE]
//     [--out docs/evidence/benchmarks.md] [--dist DIR]
//
// --quick: small shapes and few repeats, as a smoke test. --only: some sections. --dist: another build, to
// compare two. Run `npm run build` first. README.md explains the comparison.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { loadEldr } from './lib/eldr.mjs'
import { createPython } from './lib/python.mjs'
import { header, table } from './lib/table.mjs'
import { assignment } from './sections/assignment.mjs'
import { growth } from './sections/growth.mjs'
import { lab16 } from './sections/lab16.mjs'
import { paperSize } from './sections/paper-size.mjs'
import { scoring } from './sections/scoring.mjs'

const SECTIONS = { lab16, paper: paperSize, growth, assignment, scoring }
const root = fileURLToPath(new URL('..', import.meta.url))
const { values: options } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    only: { type: 'string', default: Object.keys(SECTIONS).join(',') },
    seed: { type: 'string', default: '1' },
    json: { type: 'string' },
    out: { type: 'string' },
    dist: { type: 'string', default: join(root, 'dist') },
  },
})
const names = options.only.split(',')
const unknown = names.find(name => !(name in SECTIONS))
if (unknown !== undefined)
  throw new Error(`no section ${unknown}; there are ${Object.keys(SECTIONS).join(', ')}`)

const seed = Number(options.seed)
const dist = resolve(options.dist)
const eldr = await loadEldr(dist)
const python = await createPython()
const about = header(seed)
const preface = [
  about,
  ...(python.missing ? [python.missing] : []),
  ...(options.quick ? ['Quick run: small shapes, few repeats; not for quoting.'] : []),
]
console.log(preface.join('\n'))

const scratch = mkdtempSync(join(tmpdir(), 'eldr-bench-'))
const markdown = [
  '# Benchmarks of the fit',
  'Written by `node bench/fit.mjs --out`; see bench/README.md.',
  ...preface,
]
const data = {}
try {
  for (const name of names) {
    const section = await SECTIONS[name]({ dist, eldr, python, root, scratch, seed, quick: options.quick })
    const tables = section.tables.map(({ head, rows }) => table(head, rows))
    console.log(
      ['', `── ${section.title}`, ...section.notes, ...tables.map(({ text }) => `\n${text}`)].join('\n'),
    )
    markdown.push(`## ${section.title}`, ...section.notes, ...tables.map(each => each.markdown))
    data[name] = section.data
  }
} finally {
  rmSync(scratch, { recursive: true, force: true })
}
if (options.json)
  writeFileSync(options.json, `${JSON.stringify({ about, seed, quick: options.quick, ...data }, null, 2)}\n`)
if (options.out) writeFileSync(options.out, `${markdown.join('\n\n')}\n`)
