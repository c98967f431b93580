// `npm start`: a whole cluster on this machine with a gentle load, and its live table. What follows `npm start --` goes to `eldr up`.
import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

const root = join(dirname(fileURLToPath(import.meta.url)), '..')
const program = join(root, 'dist', 'cli', 'run.js')
if (existsSync(program)) {
  const args = ['up', '--load', ...process.argv.slice(2)]
  console.log(`> eldr ${args.join(' ')}\n`)
  // In this process: Ctrl-C then has one place to go to. npm does not pass every signal on: when it is gone, so is this.
  const parent = process.ppid
  setInterval(() => process.ppid !== parent && process.kill(process.pid, 'SIGTERM'), 500).unref()
  const { run } = await import(pathToFileURL(program).href)
  process.exitCode = await run(args)
} else {
  console.error('Nothing is built yet: run `npm install` first, or `npm run build`.')
  process.exitCode = 1
}
