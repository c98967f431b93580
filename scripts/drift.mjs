// `node scripts/drift.mjs [--seeds 10]` simulates all drift scenarios and writes
// docs/evidence/results/drift.json and the pages. Run `npm run build` first. About 25 minutes of CPU time.
// `node scripts/drift.mjs --small [--seeds 5]` writes drift-small.json instead: a slow worker in small
// clusters.
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { packDrift } from '../dist/report/drift-results.js'

const root = fileURLToPath(new URL('..', import.meta.url))
const cli = join(root, 'dist', 'cli', 'main.js')
const flags = process.argv.slice(2).filter(flag => flag !== '--small')
const resultFile = name => join(root, 'docs', 'evidence', 'results', name)

/** Batches of about 10 to 45. */
const SMALL = [
  { topology: '2P4D', rates: '70,100,160' },
  { topology: '1P2D', rates: '35,60,80' },
]
const SLOW = [
  { name: 'slow', about: 'one decode worker 1.5 times slower', slowness: 1.5 },
  {
    name: 'foreign_slow',
    about: 'the same with the artifact of the other mix',
    artifact: 'foreign',
    slowness: 1.5,
  },
]

if (process.argv.includes('--small')) writeFileSync(resultFile('drift-small.json'), small())
else writeFileSync(resultFile('drift.json'), resultOf(['--drift', 'all', ...flags]))
await import('./docs.mjs')

function small() {
  const folder = mkdtempSync(join(tmpdir(), 'eldr-drift-'))
  try {
    const scenarios = join(folder, 'slow.json')
    writeFileSync(scenarios, JSON.stringify(SLOW))
    const study = ['--drift', scenarios, '--policies', 'eldr,union,union@learnt']
    const counts = ['--seeds', '5', '--requests', '2500', ...flags]
    const results = SMALL.map(({ topology, rates }) =>
      resultOf([...study, '--topology', topology, '--rates', rates, ...counts]),
    )
    return `[${results.map(result => result.trimEnd()).join(',\n')}]\n`
  } finally {
    rmSync(folder, { recursive: true })
  }
}

/** One cell per line: small, and a diff shows which cells changed. */
function resultOf(study) {
  const made = execFileSync(process.execPath, [cli, 'simulate', ...study, '--json'], {
    stdio: ['ignore', 'pipe', 'inherit'],
    maxBuffer: 1 << 26,
  })
  const { cells, ...about } = packDrift(JSON.parse(made.toString('utf8')))
  const lines = cells.map(cell => JSON.stringify(cell)).join(',\n')
  return `${JSON.stringify(about).slice(0, -1)},"cells":[\n${lines}\n]}\n`
}
