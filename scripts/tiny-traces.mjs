// Regenerates data/tiny6-prompts.{calibration,evaluation}.safetensors: a worker runs tiny6, and `eldr
// calibrate` sends it the prompts under data/prompts. Takes some minutes on one core; the bytes are the same
// on every machine. Run `npm run build` first.
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const cli = join(root, 'dist', 'cli', 'main.js')
const worker = spawn(
  process.execPath,
  [
    cli,
    'worker',
    '--backend',
    'tiny',
    '--recent-half-life',
    '64',
    '--port',
    '0',
    '--json-ready',
    '--log-level',
    'warn',
  ],
  { stdio: ['ignore', 'pipe', 'inherit'] },
)
const [line] = await once(createInterface({ input: worker.stdout }), 'line')
const { url } = JSON.parse(line)
try {
  for (const [split, prompts] of [
    ['calibration', 'calibration'],
    ['evaluation', 'held-out'],
  ]) {
    const out = join(root, 'data', `tiny6-prompts.${split}.safetensors`)
    const args = [
      '--prompts',
      join(root, 'data', 'prompts', `${prompts}.jsonl`),
      '--split',
      split,
      '--out',
      out,
      '--force',
    ]
    execFileSync(
      process.execPath,
      [cli, 'calibrate', '--url', url, '--temperature', '0.8', '--workload', 'prompts', ...args],
      { stdio: 'inherit' },
    )
  }
} finally {
  worker.kill()
}
