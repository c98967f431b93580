/** Programs that the tests of this folder run. One that is not there is named, and its tests are left out. */
import { spawn, spawnSync } from 'node:child_process'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const folder = fileURLToPath(new URL('.', import.meta.url))
/** As scripts/client-tools.sh has it. */
const environment =
  process.env['ELDR_CLIENTS'] ??
  join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'eldr', 'clients')
const inEnvironment = (name: string) => join(environment, 'bin', name)
export const script = (name: string) => join(folder, name)

export const PYTHON = inEnvironment('python')
export const AIPERF = inEnvironment('aiperf')

/** Whether a program runs. */
export function has(what: string, command: string, ...args: string[]): boolean {
  const found = spawnSync(command, args, { stdio: 'ignore' }).status === 0
  if (!found) console.warn(`left out: ${what} is not here, or does not run`)
  return found
}

export interface Ran {
  readonly code: number | null
  readonly out: string
  readonly err: string
}

export function run(
  command: string,
  args: readonly string[],
  options: { cwd?: string; env?: NodeJS.ProcessEnv; input?: string; killAfterMs?: number } = {},
): Promise<Ran> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd: options.cwd, env: options.env, stdio: 'pipe' })
    let [out, err] = ['', '']
    child.stdout.setEncoding('utf8').on('data', (text: string) => (out += text))
    child.stderr.setEncoding('utf8').on('data', (text: string) => (err += text))
    child.on('error', reject)
    child.on('close', code => resolve({ code, out, err }))
    child.stdin.end(options.input)
    if (options.killAfterMs !== undefined) setTimeout(() => child.kill('SIGKILL'), options.killAfterMs)
  })
}
