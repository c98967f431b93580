/** Another clock for a process: libfaketime shifts what it is told of the time of day, and leaves the monotonic clock alone, as a machine's
 * wrong clock does. */
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { CACHE } from '../tools.ts'

const LIBRARY = join('faketime', 'libfaketimeMT.so.1')

export function clockEnv(shiftSeconds: number): Record<string, string> {
  const shift = `${shiftSeconds < 0 ? '' : '+'}${shiftSeconds}s`
  return {
    LD_PRELOAD: libfaketime(),
    FAKETIME: shift,
    FAKETIME_DONT_FAKE_MONOTONIC: '1',
    DONT_FAKE_MONOTONIC: '1',
  }
}

/** Its folder has the machine's kind in its name. */
function libfaketime(): string {
  const roots = ['/usr/lib', join(CACHE, 'libfaketime', 'usr', 'lib')].filter(existsSync)
  const places = roots.flatMap(root => readdirSync(root).map(folder => join(root, folder, LIBRARY)))
  const found = [process.env['LIBFAKETIME'], ...places].find(
    place => place !== undefined && existsSync(place),
  )
  if (found === undefined) throw new Error('libfaketime is not here: run `bash scripts/ops-tools.sh netns`')
  return found
}
