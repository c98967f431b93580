/** The programs that scripts/deploy-tools.sh gets, and processes of them. */
import { spawn } from 'node:child_process'
import { accessSync, constants } from 'node:fs'
import { homedir } from 'node:os'
import { delimiter, join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const ROOT = fileURLToPath(new URL('../../..', import.meta.url))
export const PROGRAM = join(ROOT, 'dist', 'cli', 'main.js')
export const CHART = join(ROOT, 'deploy', 'helm', 'eldr')

export const TOOLS =
  process.env['ELDR_DEPLOY_TOOLS'] ??
  join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'eldr', 'deploy')

/** Where a program is: among those that were got, or on the PATH. */
export function tool(name: string): string | undefined {
  const folders = [join(TOOLS, 'bin'), ...(process.env['PATH'] ?? '').split(delimiter)]
  return folders
    .map(folder => join(folder, name))
    .find(path => {
      try {
        accessSync(path, constants.X_OK)
        return true
      } catch {
        return false
      }
    })
}

export interface Ended {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

export interface HowToRun {
  readonly cwd?: string
  readonly env?: NodeJS.ProcessEnv
  readonly input?: string
}

/** A process from its start to its end. What it exits with is for the caller to judge. */
export function run(
  command: string,
  args: readonly string[],
  { cwd = ROOT, env = process.env, input = '' }: HowToRun = {},
): Promise<Ended> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd, env, stdio: 'pipe' })
    let [stdout, stderr] = ['', '']
    child.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()))
    child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()))
    child.once('error', reject)
    child.once('close', code => resolve({ code, stdout, stderr }))
    // A program that reads nothing may be gone before it was given everything.
    child.stdin.on('error', () => undefined)
    child.stdin.end(input)
  })
}

/** The same, for commands that must succeed: what they print. */
export async function output(command: string, args: readonly string[], how?: HowToRun): Promise<string> {
  const { code, stdout, stderr } = await run(command, args, how)
  if (code !== 0) throw new Error(`${[command, ...args].join(' ')} ended with ${code}:\n${stderr}${stdout}`)
  return stdout
}

/** `eldr` as it was built. */
export const eldr = (args: readonly string[], how?: HowToRun): Promise<Ended> =>
  run(process.execPath, [PROGRAM, ...args], how)
