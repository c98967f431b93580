import { execFileSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'

/** Tests of the command line run dist/ in processes of their own: it is built anew before any of them. */
export default function build(): void {
  execFileSync(process.execPath, [fileURLToPath(new URL('../scripts/build.mjs', import.meta.url))], {
    stdio: 'inherit',
  })
}
