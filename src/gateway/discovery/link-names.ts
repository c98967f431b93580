/** Names in a file's folder whose change is a change of the file: its own, and those of links on the way to it. */
import { readlink } from 'node:fs/promises'
import { basename, dirname, join, relative, resolve, sep } from 'node:path'

/** As many links in a row as systems follow. */
const MAX_LINKS = 40

/** Of a ConfigMap that is mounted: workers.yaml, ..data and the folder that it names. Links that leave the folder end it. */
export async function namesOnTheWay(path: string): Promise<Set<string>> {
  const folder = resolve(dirname(path))
  const names = new Set<string>()
  let name: string | undefined = basename(path)
  while (name !== undefined && !names.has(name) && names.size < MAX_LINKS) {
    names.add(name)
    const target: string | undefined = await readlink(join(folder, name)).catch(() => undefined) // no link, or nothing yet
    const first: string | undefined =
      target === undefined ? undefined : relative(folder, resolve(folder, target)).split(sep)[0]
    name = first === '' || first === '..' ? undefined : first
  }
  return names
}
