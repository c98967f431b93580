/** Third-party API validators, installed by `scripts/api-tools.sh`. */
import { homedir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const FOLDER = fileURLToPath(new URL('.', import.meta.url))
const environment =
  process.env['ELDR_API_TOOLS'] ??
  join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'eldr', 'api')
export const SCHEMATHESIS = join(environment, 'bin', 'schemathesis')
export const SPEC_VALIDATOR = join(environment, 'bin', 'openapi-spec-validator')
