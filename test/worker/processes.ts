/** Workers and gateways as an operator starts them: processes of dist/ on free ports, awaited until ready. */
import { type ChildProcess, type ChildProcessByStdio, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import { readSamples, sumByName } from '../../src/cluster/metrics-text.ts'
import type { WorkerState } from '../../src/worker/server/state.ts'
import { postTo } from './served.ts'

export const PROGRAM =
  process.env['ELDR_TEST_PROGRAM'] ?? fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url))
const SKIP_TIME = new URL('./skip-time.mjs', import.meta.url).href
const TIMEOUT_MS = 120_000

const running = new Set<ChildProcess>()

export interface RunningProcess {
  readonly child: ChildProcess
  readonly url: string
  post(path: string, body: unknown, init?: RequestInit): Promise<Response>
  /** Its standard error so far. */
  said(): string
  /** SIGTERM; resolves with the exit code. */
  stop(): Promise<number | null>
  kill(): Promise<void>
}

export interface WorkerProcess extends RunningProcess {
  state(): Promise<WorkerState>
  metric(name: string): Promise<number>
  /** Resolves when the state is as wanted. */
  until(wanted: (state: WorkerState) => boolean, what?: string): Promise<WorkerState>
  /**
   * Differences from the initial state once the worker is idle and its prefix cache is cleared, as ‘name:
   * value’; empty if there are none.
   */
  leftovers(): Promise<string[]>
}

/** A worker whose long timers, such as those of leases, fire only when the test skips time. */
export interface SteppedWorkerProcess extends WorkerProcess {
  /** Moves the worker’s clock ahead; resolves with the delays of the long timers that are set afterwards. */
  skip(ms: number): Promise<number[]>
}

export async function startSteppedWorker(...flags: string[]): Promise<SteppedWorkerProcess> {
  const worker = await workerOf(flags, ['--import', SKIP_TIME])
  return {
    ...worker,
    async skip(skipMs) {
      const answered = once(worker.child, 'message') as Promise<[number[]]>
      worker.child.send({ skipMs })
      return (await answered)[0]
    },
  }
}

export function startWorkerProcess(...flags: string[]): Promise<WorkerProcess> {
  return workerOf(flags)
}

async function workerOf(flags: readonly string[], nodeFlags?: readonly string[]): Promise<WorkerProcess> {
  const started = await start(
    ['worker', '--port', '0', '--json-ready', '--log-level', 'warn', '--grace-ms', '1000', ...flags],
    'stdout',
    line => {
      return line.startsWith('{') ? (JSON.parse(line) as { url: string }).url : undefined
    },
    nodeFlags,
  )
  const { url } = started
  const get = async (path: string) => fetch(`${url}${path}`, { headers: { connection: 'close' } })
  const state = async () => (await get('/eldr/state')).json() as Promise<WorkerState>
  const until = (wanted: (state: WorkerState) => boolean, what = wanted.toString()) =>
    polled(state, wanted, what)
  const atStart = countsOf(await state())
  return {
    ...started,
    state,
    until,
    async metric(name) {
      return sumByName(readSamples(await (await get('/metrics')).text(), new Set([name]))).get(name) ?? NaN
    },
    async leftovers() {
      await until(isQuiet, 'idle')
      const reset = await started.post('/reset_prefix_cache', '')
      if (reset.status !== 200) throw new Error(`the prefix cache cannot be reset: ${await reset.text()}`)
      const left = async () =>
        Object.entries(countsOf(await state()))
          .filter(([name, value]) => atStart[name] !== value)
          .map(([name, value]) => `${name}: ${value}`)
      // The connection of the reset request may still be closing.
      return polled(left, names => names.length === 0, 'initial state')
    },
  }
}

function isQuiet({ requests, notices, body_bytes, leases, connections, stats }: WorkerState): boolean {
  return (
    requests +
      notices +
      body_bytes +
      leases +
      connections.kv +
      stats.running +
      stats.waiting +
      stats.blocksKept ===
    0
  )
}

/** Counts that must return to their initial values. One connection is this request’s own. */
function countsOf({
  requests,
  notices,
  leases,
  leased_blocks,
  connections,
  stats,
}: WorkerState): Record<string, number> {
  const {
    running,
    waiting,
    fetching,
    blocksFree,
    blocksCached,
    blocksKept,
    leases: held,
    kvUsage,
    signatureRows,
  } = stats
  return {
    requests,
    notices,
    leases,
    leased_blocks,
    kv: connections.kv,
    http: connections.http,
    running,
    waiting,
    fetching,
    blocksFree,
    blocksCached,
    blocksKept,
    held,
    kvUsage,
    signatureRows,
  }
}

export async function leftovers(...workers: readonly WorkerProcess[]): Promise<string[]> {
  return (await Promise.all(workers.map(worker => worker.leftovers()))).flat()
}

export function startGatewayProcess(flags: readonly string[]): Promise<RunningProcess> {
  return start(
    ['serve', '--port', '0', ...flags],
    'stderr',
    line => /listening on (https?:\/\/[^\s"]+)/.exec(line)?.[1],
  )
}

async function start(
  args: readonly string[],
  stream: 'stdout' | 'stderr',
  urlIn: (line: string) => string | undefined,
  nodeFlags: readonly string[] = [],
): Promise<RunningProcess> {
  const child = spawn(process.execPath, [...nodeFlags, PROGRAM, ...args], {
    stdio: ['ignore', 'pipe', 'pipe', ...(nodeFlags.length > 0 ? ['ipc' as const] : [])],
  }) as ChildProcessByStdio<null, Readable, Readable>
  running.add(child)
  const exited = once(child, 'exit').finally(() => running.delete(child))
  let said = ''
  child.stderr.on('data', (chunk: Buffer) => (said += chunk.toString()))
  const lines = createInterface({ input: child[stream] })
  const url = await new Promise<string>((resolve, reject) => {
    lines.on('line', line => {
      const found = urlIn(line)
      if (found !== undefined) resolve(found)
    })
    void exited.then(([code]) =>
      reject(new Error(`eldr ${args.join(' ')} ended with ${String(code)}: ${said}`)),
    )
  })
  return {
    child,
    url,
    post: (path, body, init) =>
      postTo(url)(path, body, { ...init, headers: { connection: 'close', ...init?.headers } }),
    said: () => said,
    async stop() {
      child.kill('SIGTERM')
      return ((await exited) as [number | null])[0]
    },
    async kill() {
      child.kill('SIGKILL')
      await exited
    },
  }
}

/** Kills whatever a test left running. */
export async function killAll(): Promise<void> {
  await Promise.all(
    [...running].map(async child => {
      const exited = once(child, 'exit')
      child.kill('SIGKILL')
      await exited
    }),
  )
}

/** Polls until the value is as wanted; throws after a timeout. */
export async function polled<T>(
  ask: () => Promise<T>,
  wanted: (value: T) => boolean,
  what: string,
): Promise<T> {
  const untilMs = performance.now() + TIMEOUT_MS
  for (;;) {
    const value = await ask()
    if (wanted(value)) return value
    if (performance.now() > untilMs)
      throw new Error(`${what}: not within ${TIMEOUT_MS} ms: ${JSON.stringify(value)}`)
  }
}
