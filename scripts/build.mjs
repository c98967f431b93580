// Builds dist/ from src/ with plain tsc and the dashboard's page with rolldown, from nothing, so that a file that was removed from src/ does not live on in dist/; beside the old
// one, and put in its place when it is whole, so that commands that run meanwhile find one or the other.
import { execFileSync } from 'node:child_process'
import { chmodSync, mkdirSync, renameSync, rmSync, symlinkSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { buildDashboard } from './build-dashboard.mjs'

const root = join(dirname(fileURLToPath(import.meta.url)), '..')
const [next, dist] = [join(root, 'dist.next'), join(root, 'dist')]
rmSync(next, { recursive: true, force: true })
const tsc = join(dirname(createRequire(import.meta.url).resolve('typescript/package.json')), 'bin', 'tsc')
execFileSync(process.execPath, [tsc, '-p', join(root, 'tsconfig.build.json'), '--outDir', next], {
  stdio: 'inherit',
})
await buildDashboard(next)
chmodSync(join(next, 'cli', 'main.js'), 0o755)
rmSync(dist, { recursive: true, force: true })
renameSync(next, dist)
linkProgram()

/** So that a clone has `eldr` where its other programs are. `npx eldr` in the package's own folder goes by npx's cache, and builds once more there. */
function linkProgram() {
  const link = join(root, 'node_modules', '.bin', 'eldr')
  try {
    mkdirSync(dirname(link), { recursive: true })
    rmSync(link, { force: true })
    symlinkSync(join('..', '..', 'dist', 'cli', 'main.js'), link)
  } catch (error) {
    console.warn(`no node_modules/.bin/eldr: ${error.message}`) // a system without links: npx has its own way
  }
}
