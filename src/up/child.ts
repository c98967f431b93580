/** One process of the cluster: `eldr` with some arguments, its lines, when it is ready and how it ended. */
import { type ChildProcess, spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { EldrError } from '../errors.ts'

export interface ChildSpec<Ready> {
  /** As people see it: decode-2. */
  readonly name: string
  readonly args: readonly string[]
  readonly nodeFlags: readonly string[]
  /** Looks at each line that it writes, until one says that it is ready. */
  readyIn(line: string): Ready | undefined
  onLine(line: string): void
}

export interface Child<Ready> {
  readonly pid: number | undefined
  /** Rejects when it ended before. */
  readonly ready: Promise<Ready>
  /** How it ended, in words: `exit code 1`, `SIGKILL`. */
  readonly exited: Promise<string>
  /** Asks it to end, and ends it when it has not after so long. */
  stop(graceMs: number): Promise<void>
}

/** The same places from dist/up; the processes run what is built. */
const PROGRAM = fileURLToPath(new URL('../cli/main.js', import.meta.url))
const WITH_PARENT = new URL('./with-parent.js', import.meta.url).href
/** What is told of one that did not start. */
const LAST_LINES = 12

export function startChild<Ready>({
  name,
  args,
  nodeFlags,
  readyIn,
  onLine,
}: ChildSpec<Ready>): Child<Ready> {
  const child = spawn(process.execPath, [...nodeFlags, '--import', WITH_PARENT, PROGRAM, ...args], {
    // A group of its own: Ctrl-C in the terminal is for the one who started it, who then stops all in order.
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
          found: `${name} ended (${how}) before it was ready`,
          problems: last.map(line => `${name}: ${line}`),
        }),
      )
    })
  })
  // Whoever waits for it hears of it; a restart that fails is told by `exited`.
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

/** The cluster is as the command line says: settings of another gateway that lie in the environment are not its own. */
function environment(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('ELDR_')))
}
