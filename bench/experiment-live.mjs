// One experiment on the embedded cluster: starts `eldr up --load`, runs `eldr experiment --json` beside it
// and appends its output, with the commands and the load of the machine, to a file. Every run is kept, also
// one that finds nothing.
//
//   node bench/experiment-live.mjs [--slots 40] [--speed 0.6] [--out FILE.json]
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { availableParallelism, loadavg } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'

const root = fileURLToPath(new URL('..', import.meta.url))
const { values: options } = parseArgs({
  options: {
    slots: { type: 'string', default: '40' },
    slot: { type: 'string', default: '10' },
    washout: { type: 'string', default: '3' },
    speed: { type: 'string', default: '0.6' },
    port: { type: 'string', default: '8000' },
    out: { type: 'string' },
    dist: { type: 'string', default: join(root, 'dist') },
  },
})
const { slots, slot, washout, speed, port } = options
const up = ['up', '--load', '--policy', 'union', '--speed', speed]
const experiment = ['experiment', '--policies', 'jsq,union', '--slot', slot, '--washout', washout]
experiment.push('--slots', slots, '--seed', '1')
const url = `http://127.0.0.1:${port}`
const eldr = (args, stdout) =>
  spawn(process.execPath, [join(options.dist, 'cli', 'main.js'), ...args], {
    stdio: ['ignore', stdout, 'inherit'],
  })

const cluster = eldr([...up, '--port', port, '--no-table'], 'ignore')
process.on('exit', () => cluster.kill())
while (
  !(await fetch(`${url}/ready`).then(
    ({ ok }) => ok,
    () => false,
  ))
) {
  if (cluster.exitCode !== null) throw new Error('eldr up ended')
  await new Promise(resolve => setTimeout(resolve, 500))
}
const client = eldr([...experiment, '--url', url, '--json'], 'pipe')
let text = ''
client.stdout.on('data', chunk => (text += chunk))
const [code] = await once(client, 'close')
const result = {
  cluster: `eldr ${up.join(' ')}`,
  command: `eldr ${experiment.join(' ')}`,
  conditions: '2P4D, lab16-task, profile h200-first',
  cores: availableParallelism(),
  loadAverage: Number(loadavg()[1].toFixed(1)),
  result: JSON.parse(text),
}
for (const { words } of result.result.comparisons) console.log(words)
if (options.out !== undefined) {
  const before = existsSync(options.out) ? JSON.parse(readFileSync(options.out, 'utf8')) : []
  writeFileSync(options.out, `${JSON.stringify([...before, result])}\n`)
}
process.exit(code ?? 1)
