/** Programs of scripts/ops-tools.sh: on the PATH, or where it unpacked them. */
import { existsSync } from 'node:fs'
import { homedir } from 'node:os'
import { delimiter, join } from 'node:path'

export const CACHE =
  process.env['ELDR_OPS'] ?? join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'eldr', 'ops')

/**
 * `folder` is the package's. Fails with what to do where there is none: these tests are never left out
 * silently.
 */
export function tool(folder: string, name: string): string {
  const places = [...(process.env['PATH'] ?? '').split(delimiter), join(CACHE, folder, 'usr', 'bin')]
  const found = places.map(place => join(place, name)).find(existsSync)
  if (found === undefined) throw new Error(`${name} is not here: run \`bash scripts/ops-tools.sh ${folder}\``)
  return found
}
