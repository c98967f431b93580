// `npm start`: fits the shipped trace and shows where the report lies.
import { spawnSync } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = join(dirname(fileURLToPath(import.meta.url)), '..')
const here = path => relative(process.cwd(), join(root, path)) || '.'
mkdirSync(join(root, 'eldr-out'), { recursive: true })
const args = [
  'fit', here('data/lab16-task.calibration.safetensors'),
  '--workers', '16',
  '--ranks', '4',
  '--out', here('eldr-out/task.artifact.safetensors'),
  '--report', here('eldr-out/task.html'),
] // prettier-ignore
console.log(`> eldr ${args.join(' ')}\n`)
const { status } = spawnSync(process.execPath, [join(root, 'dist', 'cli', 'main.js'), ...args], { stdio: 'inherit' })
if (status === 0) console.log(`\nOpen ${here('eldr-out/task.html')} in a browser to see the figures.`)
process.exitCode = status ?? 1
