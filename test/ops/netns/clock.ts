/**
 * A shifted clock for a process: libfaketime changes the time of day and leaves the monotonic clock alone, as
 * a wrong system clock does.
 */
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

/** The name of its folder contains the architecture. */
function libfaketime(): string {
  const roots = ['/usr/lib', join(CACHE, 'libfaketime', 'usr', 'lib')].filter(existsSync)
  const places = roots.flatMap(root => readdirSync(root).map(folder => join(root, folder, LIBRARY)))
  const found = [process.env['LIBFAKETIME'], ...places].find(
    place => place !== undefined && existsSync(place),
  )
  if (found === undefined) throw new Error('libfaketime not found: run `bash scripts/ops-tools.sh netns`')
  return found
}
