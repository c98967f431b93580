// `npm start`: a cluster on this machine with a light load and a live table. Arguments after `npm start --`
// go to `eldr up`.
import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

const root = join(dirname(fileURLToPath(import.meta.url)), '..')
const program = join(root, 'dist', 'cli', 'run.js')
if (existsSync(program)) {
  const args = ['up', '--load', ...process.argv.slice(2)]
  console.log(`> eldr ${args.join(' ')}\n`)
  // In this process, so that Ctrl-C reaches it. npm does not forward every signal: exit when npm is gone.
  const parent = process.ppid
  setInterval(() => process.ppid !== parent && process.kill(process.pid, 'SIGTERM'), 500).unref()
  const { run } = await import(pathToFileURL(program).href)
  process.exitCode = await run(args)
} else {
  console.error('dist/ is missing: run `npm install` or `npm run build` first.')
  process.exitCode = 1
}
