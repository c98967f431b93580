// docs/evidence/benchmarks-simulator.md has two writers, simulator.mjs and cross-check.mjs. Each replaces its
// own sections.
import { existsSync, readFileSync, writeFileSync } from 'node:fs'

const PREFACE = [
  '# Benchmarks of the simulator',
  'Written by `node bench/simulator.mjs --out` and `node bench/cross-check.mjs --out`; bench/README.md says how and why.',
].join('\n\n')

/** Who wrote a section, in a comment that a page does not show. */
const mark = writer => `<!-- ${writer} -->`
const WRITERS = ['simulator', 'cross-check']

/** @param markdown of all sections of this writer, with the line that says where its numbers come from */
export function putSections(file, writer, markdown) {
  const text = existsSync(file) ? readFileSync(file, 'utf8') : ''
  const parts = WRITERS.map(each => (each === writer ? `${mark(each)}\n\n${markdown}` : partOf(text, each)))
  writeFileSync(file, `${[PREFACE, ...parts.filter(part => part !== '')].join('\n\n')}\n`)
}

function partOf(text, writer) {
  const from = text.indexOf(mark(writer))
  if (from < 0) return ''
  const ends = WRITERS.map(other => text.indexOf(mark(other), from + 1)).filter(at => at > from)
  return text.slice(from, Math.min(text.length, ...ends)).trim()
}
