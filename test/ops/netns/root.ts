/** Network namespaces require root: commands run as root, with sudo if it needs no password. */
import { execFileSync } from 'node:child_process'
import { accessSync } from 'node:fs'
import { tool } from '../tools.ts'

export const AS_ROOT: readonly string[] = process.getuid?.() === 0 ? [] : ['sudo', '-n']

/** Returns standard output. Throws with standard error. */
export function asRoot(...command: string[]): string {
  const [program, ...flags] = [...AS_ROOT, ...command]
  return execFileSync(program!, flags, {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, PATH: pathWithSbin() },
  })
}

/** Debian has `ip` in a folder that is not in a user's PATH. */
export function pathWithSbin(): string {
  return `${process.env['PATH'] ?? ''}:/usr/sbin:/sbin`
}

const probe = (number: number) => `eldr${process.pid}p${number}-probe`
let probes = 0

/**
 * Why namespaces with TAP devices cannot be created, for the line that reports skipped tests; undefined if
 * they can.
 */
export function whyNoNamespaces(): string | undefined {
  const name = probe(probes++)
  try {
    accessSync('/dev/net/tun')
  } catch {
    return 'there is no /dev/net/tun'
  }
  try {
    asRoot('ip', 'netns', 'add', name)
  } catch (error) {
    const why = lastLine(error)
    return AS_ROOT.length > 0
      ? `not root, and no sudo without a password (${why})`
      : `cannot create a network namespace (${why})`
  }
  try {
    asRoot('ip', '-n', name, 'tuntap', 'add', 'dev', 'eth0', 'mode', 'tap')
  } catch (error) {
    return `cannot create a TAP device (${lastLine(error)})`
  } finally {
    asRoot('ip', 'netns', 'del', name)
  }
  return undefined
}

function lastLine(error: unknown): string {
  const { stderr, message } = error as { stderr?: string; message: string }
  return (stderr ?? message).trim().split('\n').at(-1) ?? message
}

export function python(): string {
  return tool('netns', 'python3')
}
