import { execFileSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'

/** Builds dist/ before all tests: those of the command line run it in processes of their own. */
export default function build(): void {
  execFileSync(process.execPath, [fileURLToPath(new URL('../scripts/build.mjs', import.meta.url))], {
    stdio: 'inherit',
  })
}
