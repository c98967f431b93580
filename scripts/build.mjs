// Builds dist/ from src/ with tsc, and the dashboard with rolldown. It builds into an empty folder, so that
// files removed from src/ disappear, and then replaces dist/ in one step, so that running commands find
// either the old or the new one.
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

/**
 * Puts `eldr` into node_modules/.bin. `npx eldr` in the package's own folder uses npx's cache and builds
 * again there.
 */
function linkProgram() {
  const link = join(root, 'node_modules', '.bin', 'eldr')
  try {
    mkdirSync(dirname(link), { recursive: true })
    rmSync(link, { force: true })
    symlinkSync(join('..', '..', 'dist', 'cli', 'main.js'), link)
  } catch (error) {
    // There are no symbolic links on this system; npx still works.
    console.warn(`no node_modules/.bin/eldr: ${error.message}`)
  }
}
