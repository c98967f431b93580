import { readFileSync } from 'node:fs'

/** The release, from package.json: what artifacts, reports and `--version` name. */
export const VERSION: string = (
  JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as { version: string }
).version
