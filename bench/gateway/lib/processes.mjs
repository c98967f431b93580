// Processes of a benchmark: pinned to cores if taskset exists, awaited until they respond, and killed when
// the benchmark ends.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { availableParallelism } from 'node:os'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

const START_MS = 20_000
const root = fileURLToPath(new URL('../../../', import.meta.url))
const cores = availableParallelism()
const canPin = cores > 1 && spawnSync('taskset', ['-c', '0', 'true']).status === 0

/** Cores of the router, and of all else. */
export const ROUTER_CORE = '0'
export const OTHER_CORES = cores === 2 ? '1' : `1-${cores - 1}`
export const pinning = canPin
  ? `router on core ${ROUTER_CORE}, workers and client on ${OTHER_CORES}`
  : 'not pinned: no taskset or one core'

/** @type {Set<import('node:child_process').ChildProcess>} */
const living = new Set()
process.on('exit', () => living.forEach(end))
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1))

/**
 * Kills a process and those it started: each is the head of a group.
 * @param {import('node:child_process').ChildProcess} child
 */
function end(child) {
  living.delete(child)
  try {
    process.kill(-child.pid, 'SIGKILL')
  } catch {
    // it has ended by itself
  }
}

/**
 * @param {string} command
 * @param {readonly string[]} args
 * @param {{cores: string, nice?: string, env?: Record<string, string>}} where
 */
export function start(command, args, { cores, nice, env = {} }) {
  const line = [
    ...(nice === undefined ? [] : ['nice', '-n', nice]),
    ...(canPin ? ['taskset', '-c', cores] : []),
    command,
    ...args,
  ]
  const child = spawn(line[0], line.slice(1), {
    cwd: root,
    detached: true,
    stdio: ['pipe', 'pipe', 'pipe'],
    env: { ...process.env, ...env },
  })
  living.add(child)
  let said = ''
  for (const pipe of [child.stdout, child.stderr])
    pipe.on('data', text => (said = (said + text).slice(-2000)))
  child.on('error', error => (said += error.message))
  child.stdin.on('error', () => undefined)
  return {
    child,
    pid: child.pid,
    /** The end of its output. */
    said: () => said.trim().split('\n').slice(-3).join(' ⏎ '),
    async stop() {
      if (child.exitCode !== null || child.signalCode !== null) return end(child)
      const exited = once(child, 'exit')
      end(child)
      await exited
    },
  }
}

/** A fake worker. @param {readonly string[]} args @param {string | undefined} nice */
export async function startWorker(args, nice) {
  const main = 'test/fake-worker/main.mjs'
  const worker = start(process.execPath, [main, '--until-stdin-ends', ...args], { cores: OTHER_CORES, nice })
  const [line] = await once(createInterface(worker.child.stdout), 'line')
  return { ...worker, url: JSON.parse(line).url }
}

/** Runs the load client to its end. @param {object} plan @param {string | undefined} nice */
export async function load(plan, nice) {
  const client = start(process.execPath, ['bench/gateway/load-client.mjs', JSON.stringify(plan)], {
    cores: OTHER_CORES,
    nice,
  })
  const line = await Promise.race([
    once(createInterface(client.child.stdout), 'line'),
    once(client.child, 'exit').then(() => []),
  ])
  await client.stop()
  if (line[0] === undefined) throw new Error(`the load client ended: ${client.said()}`)
  return JSON.parse(line[0])
}

/** A free port. */
export async function freePort() {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address()
  server.close()
  await once(server, 'close')
  return port
}

/** Waits until a router is healthy; otherwise throws an Error with its output. */
export async function healthy(process_, url) {
  const give = performance.now() + START_MS
  for (;;) {
    if (process_.child.exitCode !== null || process_.child.signalCode !== null)
      throw new Error(`it ended: ${process_.said()}`)
    const ok = await fetch(url, { signal: AbortSignal.timeout(1000) }).then(
      ({ ok }) => ok,
      () => false,
    )
    if (ok) return
    if (performance.now() > give)
      throw new Error(`it does not answer after ${START_MS / 1e3} s: ${process_.said()}`)
    await new Promise(done => setTimeout(done, 50))
  }
}
