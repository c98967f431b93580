// Makes data/tiny6-prompts.{calibration,evaluation}.safetensors anew: a worker computes tiny6, and `eldr calibrate` asks it the prompts under
// data/prompts, some minutes on one core. The bytes do not depend on the machine nor on what else it does. Run `npm run build` before.
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
