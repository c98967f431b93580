// Simulates the figures of docs/guides/scale.md and writes them to docs/evidence/results/scale.json.gz:
//   node scripts/scale.mjs [--only staleness,cells,wire,size] [--seeds 3]
// Parts not named keep their figures. Run `npm run build` first. About ten minutes on two idle cores. The
// cost of decisions is measured by `node bench/decision-scale.mjs --out
// docs/evidence/benchmarks-scale.md`.
import { execFileSync } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { cpus, tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { resultText, writeCompressed } from '../dist/report/result-text.js'
import { cellRuns, sizeRuns, stalenessRuns } from './scale/runs.mjs'
import { messageSizes } from './scale/wire.mjs'

const PARTS = ['staleness', 'cells', 'wire', 'size']
const { values } = parseArgs({
  options: { only: { type: 'string', default: PARTS.join(',') }, seeds: { type: 'string', default: '3' } },
})
const only = values.only.split(',')
const unknown = only.find(name => !PARTS.includes(name))
if (unknown !== undefined) throw new Error(`--only ${unknown}: expected some of ${PARTS.join(', ')}`)

const root = fileURLToPath(new URL('..', import.meta.url))
const file = new URL('../docs/evidence/results/scale.json.gz', import.meta.url)
const folder = mkdtempSync(join(tmpdir(), 'eldr-scale-'))
const artifact = join(folder, 'task.artifact.safetensors')
const data = name => join(root, 'data', `lab16-task.${name}.safetensors`)
const context = {
  trace: data('evaluation'),
  artifact,
  seeds: Number(values.seeds),
  progress: (what, done, of) =>
    process.stderr.write(`\r\u001b[2K  ${what} … ${done}/${of}${done === of ? '\n' : ''}`),
}
const makers = { staleness: stalenessRuns, cells: cellRuns, wire: messageSizes, size: sizeRuns }
try {
  const cli = join(root, 'dist', 'cli', 'main.js')
  execFileSync(process.execPath, [
    cli,
    'fit',
    data('calibration'),
    '--workers',
    '8',
    '--out',
    artifact,
    '--quiet',
    '--json',
  ])
  const results = existsSync(file) ? JSON.parse(await resultText(file)) : {}
  for (const part of only) {
    const made = await makers[part](context)
    const on = `${cpus()[0]?.model.replace(/\s+/g, ' ').trim()}, Node ${process.version}, ${new Date().toISOString().slice(0, 10)}`
    results[part] = { on, ...made }
    // After each part, so that an interrupted run keeps its results.
    await writeCompressed(file, `${JSON.stringify(results)}\n`)
  }
} finally {
  rmSync(folder, { recursive: true })
}
await import('./docs.mjs')
