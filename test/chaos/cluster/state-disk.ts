/**
 * A small disk for each gateway's temporary folder, which the adversary fills. Needs root; without it the
 * folder is an ordinary one that cannot be filled.
 */
import { execFileSync } from 'node:child_process'
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, rmSync, writeSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const SIZE_MB = 16
const FOLDER = /^eldr-chaos-(\d+)$/

export interface StateDisk {
  readonly folder: string
  /** Undefined if it cannot be filled. Returns what frees it. */
  readonly fill?: () => () => void
  remove(): void
}

const mounted = new Set<string>()

/** The folder of this process, removed when it exits; those of processes that were killed are removed. */
export function chaosFolder(): string {
  const folder = join(tmpdir(), `eldr-chaos-${process.pid}`)
  if (existsSync(folder)) return folder
  removeStale()
  mkdirSync(folder)
  process.once('exit', () => {
    for (const place of mounted) unmount(place)
    rmSync(folder, { recursive: true, force: true })
  })
  return folder
}

export function createStateDisk(parent: string, name: string): StateDisk {
  const folder = join(parent, name)
  mkdirSync(folder, { recursive: true })
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${SIZE_MB}m`, 'tmpfs', folder], { stdio: 'pipe' })
  } catch {
    return { folder, remove: () => rmSync(folder, { recursive: true, force: true }) }
  }
  mounted.add(folder)
  const filler = join(folder, 'filler')
  return {
    folder,
    fill() {
      const file = openSync(filler, 'w')
      try {
        for (const piece = Buffer.alloc(1 << 16); ;) writeSync(file, piece)
      } catch {
        // full
      } finally {
        closeSync(file)
      }
      return () => rmSync(filler, { force: true })
    },
    remove() {
      unmount(folder)
      mounted.delete(folder)
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

function unmount(folder: string): void {
  try {
    // Lazily: a process that was just killed may still be ending.
    execFileSync('umount', ['-l', folder], { stdio: 'pipe' })
  } catch {
    // not mounted
  }
}

function removeStale(): void {
  if (!existsSync('/proc/mounts')) return
  const mounts = readFileSync('/proc/mounts', 'utf8').split('\n')
  for (const line of mounts) {
    const place = line.split(' ')[1] ?? ''
    const folder = place.startsWith(`${tmpdir()}/`) ? place.slice(tmpdir().length + 1).split('/')[0]! : ''
    const pid = Number(FOLDER.exec(folder)?.[1] ?? 0)
    if (pid === 0 || existsSync(`/proc/${pid}`)) continue
    unmount(place)
    rmSync(join(tmpdir(), folder), { recursive: true, force: true })
  }
}
