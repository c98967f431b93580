// `node scripts/results.mjs [--cut]` makes docs/evidence/results/{cut,whole}.json.br and the pages from them.
// The whole traces and the recorded arrivals are not in the repository but expected in ../shared; --cut makes
// only the cut. Run `npm run build` first.
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { brotliCompressSync } from 'node:zlib'

const root = fileURLToPath(new URL('..', import.meta.url))
const beside = join(root, '..', 'shared')
const out = mkdtempSync(join(tmpdir(), 'eldr-results-'))

function make(name, ...args) {
  console.log(`> eldr reproduce ${args.join(' ')}`)
  const cli = join(root, 'dist', 'cli', 'main.js')
  execFileSync(process.execPath, [cli, 'reproduce', '--out', out, ...args], {
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  const text = readFileSync(join(out, 'results.json'))
  writeFileSync(join(root, 'docs', 'evidence', 'results', `${name}.json.br`), brotliCompressSync(text))
}

mkdirSync(join(root, 'docs', 'evidence', 'results'), { recursive: true })
try {
  make('cut')
  if (!process.argv.includes('--cut'))
    make('whole', '--traces', join(beside, 'traces'), '--workloads', join(beside, 'workloads'))
} finally {
  rmSync(out, { recursive: true })
}
await import('./docs.mjs')
