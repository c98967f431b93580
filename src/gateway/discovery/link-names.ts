/**
 * Names in a file's folder whose change may change the file: its own, and those of symbolic links on the path
 * to it.
 */
import { readlink } from 'node:fs/promises'
import { basename, dirname, join, relative, resolve, sep } from 'node:path'

/** The limit of most systems. */
const MAX_LINKS = 40

/**
 * For a mounted ConfigMap: workers.yaml, ..data and the folder that it points to. Stops at links that leave
 * the folder.
 */
export async function watchedNames(path: string): Promise<Set<string>> {
  const folder = resolve(dirname(path))
  const names = new Set<string>()
  let name: string | undefined = basename(path)
  while (name !== undefined && !names.has(name) && names.size < MAX_LINKS) {
    names.add(name)
    const target: string | undefined = await readlink(join(folder, name)).catch(() => undefined)
    const first: string | undefined =
      target === undefined ? undefined : relative(folder, resolve(folder, target)).split(sep)[0]
    name = first === '' || first === '..' ? undefined : first
  }
  return names
}
