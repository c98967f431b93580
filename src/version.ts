import { readFileSync } from 'node:fs'

/** The release, from package.json; used in artifacts, reports and `--version`. */
export const VERSION: string = (
  JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as { version: string }
).version
