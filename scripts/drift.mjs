// `node scripts/drift.mjs [--seeds 10]` simulates all drift scenarios and writes
// docs/evidence/results/drift.json and the pages. Run `npm run build` first. About 25 minutes of CPU time.
import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { POLICIES } from '../dist/policy/decode-policy.js'
import { packDrift } from '../dist/report/drift-results.js'

const root = fileURLToPath(new URL('..', import.meta.url))
const cli = join(root, 'dist', 'cli', 'main.js')
const policies = [...POLICIES, 'union@learnt'].join(',')
const made = execFileSync(
  process.execPath,
  [cli, 'simulate', '--drift', 'all', '--policies', policies, '--json', ...process.argv.slice(2)],
  { stdio: ['ignore', 'pipe', 'inherit'], maxBuffer: 1 << 26 },
)
const results = packDrift(JSON.parse(made.toString('utf8')))
const { cells, ...about } = results
// One cell per line: small, and a diff shows which cells changed.
const lines = cells.map(cell => JSON.stringify(cell)).join(',\n')
writeFileSync(
  join(root, 'docs', 'evidence', 'results', 'drift.json'),
  `${JSON.stringify(about).slice(0, -1)},"cells":[\n${lines}\n]}\n`,
)
await import('./docs.mjs')
