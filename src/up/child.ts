/** One process of the cluster: `eldr` with some arguments, its output, readiness and exit. */
import { type ChildProcess, spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { EldrError } from '../errors.ts'

export interface ChildSpec<Ready> {
  /** Name for people, such as decode-2. */
  readonly name: string
  readonly args: readonly string[]
  readonly nodeFlags: readonly string[]
  /** Called for each output line; returns a value for the line that says it is ready. */
  readyIn(line: string): Ready | undefined
  onLine(line: string): void
}

export interface Child<Ready> {
  readonly pid: number | undefined
  /** Rejects if the process ends before it is ready. */
  readonly ready: Promise<Ready>
  /** How it ended: `exit code 1`, `SIGKILL`. */
  readonly exited: Promise<string>
  /** Sends SIGTERM, then SIGKILL after `graceMs`. */
  stop(graceMs: number): Promise<void>
}

/** Relative to dist/up: the processes run the build. */
const PROGRAM = fileURLToPath(new URL('../cli/main.js', import.meta.url))
/**
 * Loaded into every process before its program: the process exits when its parent is gone for any reason. The
 * channel to the parent does not keep the process alive.
 */
const EXIT_WITH_PARENT = `data:text/javascript,${encodeURIComponent(
  "process.on('disconnect', () => process.exit(0)); process.channel?.unref()",
)}`
/** Number of output lines to report if a process does not start. */
const LAST_LINES = 12

export function startChild<Ready>({
  name,
  args,
  nodeFlags,
  readyIn,
  onLine,
}: ChildSpec<Ready>): Child<Ready> {
  const child = spawn(process.execPath, [...nodeFlags, '--import', EXIT_WITH_PARENT, PROGRAM, ...args], {
    // A separate process group: Ctrl-C goes only to the parent, which then stops all children in order.
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    env: environment(),
  })
  const last: string[] = []
  const exited = new Promise<string>(resolve => {
    child.once('error', error => resolve(error.message))
    child.once('exit', (code, signal) => resolve(signal ?? `exit code ${code}`))
  })
  const ready = new Promise<Ready>((resolve, reject) => {
    for (const input of [child.stdout!, child.stderr!])
      createInterface({ input }).on('line', line => {
        last.splice(0, last.length - LAST_LINES + 1)
        last.push(line)
        const found = readyIn(line)
        if (found !== undefined) resolve(found)
        onLine(line)
      })
    void exited.then(async how => {
      await Promise.all([drained(child.stdout!), drained(child.stderr!)])
      reject(
        new EldrError('ELDR_CLUSTER_FAILED', {
          found: `${name} exited (${how}) before it was ready`,
          problems: last.map(line => `${name}: ${line}`),
        }),
      )
    })
  })
  // Callers that wait for `ready` get the error; a failed restart is reported through `exited`.
  ready.catch(() => undefined)
  return { pid: child.pid, ready, exited, stop: graceMs => stop(child, exited, graceMs) }
}

function drained(stream: NodeJS.ReadableStream): Promise<void> {
  return new Promise(resolve => (stream.readable ? stream.once('close', resolve) : resolve()))
}

async function stop(child: ChildProcess, exited: Promise<string>, graceMs: number): Promise<void> {
  child.kill('SIGTERM')
  const timer = setTimeout(() => child.kill('SIGKILL'), graceMs)
  await exited
  clearTimeout(timer)
}

/** Without ELDR_ variables: only the command line configures the cluster. */
function environment(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('ELDR_')))
}
