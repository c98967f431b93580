/**
 * Processes that die at bad moments or run out of file descriptors: nothing hangs and nothing is left behind.
 */
import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { afterEach, describe, expect, it } from 'vitest'
import { readSamples, sumByName } from '../../src/cluster/metrics-text.ts'
import { startFakeWorker } from '../fake-worker/index.ts'
import { freePort } from '../free-port.ts'
import { killAll, polled, PROGRAM } from '../worker/processes.ts'
import { eventsOf, SHAPE } from '../gateway/cluster.ts'
import { ended, type ProcessCluster, runs, startProcessCluster } from '../gateway/process-cluster.ts'
import { eventually } from '../gateway/watching.ts'

let cluster: ProcessCluster | undefined
afterEach(async () => {
  await cluster?.stop()
  cluster = undefined
  await killAll()
})

const HAS_PRLIMIT = spawnSync('prlimit', ['--version']).status === 0
const NAMES = ['owner', 'relay-1', 'relay-2']
const start = async (options: Parameters<typeof startProcessCluster>[0] = {}) =>
  (cluster = await startProcessCluster(options))
const ask = ({ post }: Pick<ProcessCluster, 'post'>, more: object = {}) =>
  post(
    '/v1/completions',
    { prompt: 'Once', stream: true, max_tokens: 3, ...more },
    { headers: { connection: 'close' } },
  )
/**
 * Streams that have begun and stop after two tokens until they are released. Requests after them are not
 * held.
 */
async function heldStreams(here: ProcessCluster, count: number) {
  const { holdNoMore, release } = here.holdStreams()
  const streams = await Promise.all(Array.from({ length: count }, () => ask(here, { max_tokens: 6 })))
  holdNoMore()
  return { streams, release }
}
const done = async (response: Response) => (await eventsOf(response)).at(-1) === '[DONE]'
const pause = (ms: number) => new Promise(resolve => setTimeout(resolve, ms))
/** The child processes of a process, also those that are not ready yet. */
function childrenOf(pid: number): number[] {
  try {
    return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8')
      .trim()
      .split(' ')
      .filter(Boolean)
      .map(Number)
  } catch {
    return []
  }
}
async function counters({ url }: ProcessCluster): Promise<(number | undefined)[]> {
  const names = ['eldr_tickets', 'eldr_running_requests', 'eldr_ticket_double_releases_total']
  const sums = sumByName(readSamples(await (await fetch(`${url}/metrics`)).text(), new Set(names)))
  return names.map(name => sums.get(name))
}

describe('an owner that dies repeatedly', () => {
  it('also while it starts does not end streams, and the last owner works as the first did', async () => {
    const here = await start()
    const { streams, release } = await heldStreams(here, 8)
    const supervisor = here.process.child.pid!
    const relays = new Set(['relay-1', 'relay-2'].map(here.pidOf))
    const killed = new Set<number>()
    // The next ones are killed before they are ready, or while relays report their requests to them.
    for (let n = 0; n < 4; n++) {
      const [pid] = await polled(
        async () => (
          await pause(1),
          childrenOf(supervisor).filter(one => !relays.has(one) && !killed.has(one))
        ),
        found => found.length > 0,
        'an owner',
      )
      if (n === 3)
        await polled(
          async () => (await pause(1), here.pidOf('owner')),
          ready => ready === pid,
          'the owner to be ready',
        )
      killed.add(pid!)
      process.kill(pid!, 'SIGKILL')
    }
    await polled(
      async () => (await pause(5), here.pidOf('owner')),
      pid => !killed.has(pid),
      'an owner that stays',
    )
    await polled(here.inflight, count => count === 8, 'the held streams')
    release()
    for (const response of streams) expect(await done(response)).toBe(true)
    expect(await done(await ask(here))).toBe(true)
    await here.idle()
    expect(await counters(here)).toEqual([0, 0, 0])
  })

  it('together with a relay does not leave load of the relay behind', async () => {
    const here = await start()
    const { streams, release } = await heldStreams(here, 8)
    const pids = ['owner', 'relay-1'].map(here.pidOf)
    for (const pid of pids) process.kill(pid, 'SIGKILL')
    await here.replaced('owner', pids[0]!)
    await here.replaced('relay-1', pids[1]!)
    release()
    const ends = await Promise.all(streams.map(response => done(response).catch(() => 'broke')))
    expect(new Set(ends)).toEqual(new Set([true, 'broke']))
    await here.idle()
    expect(await counters(here)).toEqual([0, 0, 0])
  })
})

describe('a supervisor that gets SIGTERM', () => {
  it('while there is no owner finishes the streams and leaves no process behind', async () => {
    const here = await start()
    const { streams, release } = await heldStreams(here, 4)
    const supervisor = here.process.child.pid!
    const first = here.pidOf('owner')
    process.kill(first, 'SIGKILL')
    await here.replaced('owner', first)
    // After the second death the supervisor waits before it starts the next owner.
    process.kill(here.pidOf('owner'), 'SIGKILL')
    const rest = childrenOf(supervisor)
    const stopped = here.process.stop()
    await polled(
      async () => (await pause(5), here.process.said()),
      said => said.includes('SIGTERM: '),
      'the signal to be handled',
    )
    release()
    for (const response of streams) expect(await done(response)).toBe(true)
    expect(await stopped).toBe(0)
    expect(rest.filter(runs)).toEqual([])
  })

  it('twice ends at once, even if a process hangs', async () => {
    const here = await start()
    await heldStreams(here, 4)
    const pids = NAMES.map(here.pidOf)
    process.kill(pids[1]!, 'SIGSTOP')
    const { child } = here.process
    const exited = once(child, 'exit')
    child.kill('SIGTERM')
    await polled(
      async () => (await pause(5), here.process.said()),
      said => said.includes('SIGTERM: '),
      'the first signal to be handled',
    )
    child.kill('SIGTERM')
    expect((await exited)[0]).toBe(130)
    await ended(pids)
  })
})

describe('without free file descriptors', () => {
  /** Workers, and a gateway started by a shell command. */
  async function startBy(line: string) {
    const prefill = await startFakeWorker({ role: 'prefill', counts: SHAPE })
    const decode = await startFakeWorker({ role: 'decode', prefills: [prefill] })
    const port = await freePort()
    const flags = [
      'serve',
      '--processes',
      '2',
      '--port',
      String(port),
      '--prefill',
      prefill.url,
      '--decode',
      decode.url,
    ]
    const child = spawn(
      'bash',
      ['-c', `${line.replace('GATEWAY', '"$@"')}`, 'bash', process.execPath, PROGRAM, ...flags],
      { stdio: ['ignore', 'ignore', 'pipe'] },
    )
    let said = ''
    child.stderr.on('data', (chunk: Buffer) => (said += chunk.toString()))
    const url = `http://127.0.0.1:${port}`
    const post = (path: string, body: unknown, init?: RequestInit) =>
      fetch(`${url}${path}`, {
        method: 'POST',
        body: JSON.stringify(body),
        ...init,
        headers: { 'content-type': 'application/json', ...init?.headers },
      })
    const isReady = async () => (
      await pause(10),
      fetch(`${url}/ready`, { headers: { connection: 'close' } }).then(
        ({ status }) => status === 200,
        () => false,
      )
    )
    await polled(isReady, Boolean, `a gateway: ${said}`)
    const pids = childrenOf(child.pid!)
    return {
      post,
      url,
      pids,
      isReady,
      said: () => said,
      async stop() {
        const exited = once(child, 'exit')
        child.kill('SIGTERM')
        const [code] = (await exited) as [number | null]
        await Promise.all([prefill.close(), decode.close()])
        await ended(pids)
        return code
      },
    }
  }

  it('a gateway closes connections that it cannot accept, and accepts others later', async () => {
    const gateway = await startBy('ulimit -n 256; exec GATEWAY')
    const { hostname, port } = new URL(gateway.url)
    const sockets: Socket[] = []
    let closed = 0
    for (let n = 0; n < 900; n++) {
      const socket = connect(Number(port), hostname)
      socket
        .on('error', () => {})
        .once('close', () => closed++)
        .resume()
      sockets.push(socket)
    }
    // More connections than descriptors: the rest are closed and do not wait forever.
    await eventually(() => closed > 300, 'connections to be closed')
    for (const socket of sockets) socket.destroy()
    const served = async () => (await pause(20), ask(gateway).then(done, () => false))
    await polled(served, Boolean, `an answer: ${gateway.said()}`)
    for (let n = 0; n < 6; n++) expect(await done(await ask(gateway))).toBe(true)
    expect(gateway.pids.every(runs), gateway.said()).toBe(true)
    expect(await gateway.stop()).toBe(0)
  })

  it.runIf(HAS_PRLIMIT)('relays close the connections that cannot be handed to them', async () => {
    const here = await start()
    const relays = ['relay-1', 'relay-2'].map(here.pidOf)
    for (const pid of relays)
      execFileSync('prlimit', [
        '--pid',
        String(pid),
        `--nofile=${readdirSync(`/proc/${pid}/fd`).length + 20}`,
      ])
    const { hostname, port } = new URL(here.url)
    let closed = 0
    const sockets = Array.from({ length: 120 }, () =>
      connect(Number(port), hostname)
        .on('error', () => {})
        .once('close', () => closed++)
        .resume(),
    )
    await eventually(() => closed >= 70, 'the connections without a descriptor to be closed')
    for (const socket of sockets) socket.destroy()
    const served = async () => (await pause(20), ask(here).then(done, () => false))
    await polled(served, Boolean, 'an answer')
    expect(['relay-1', 'relay-2'].map(here.pidOf)).toEqual(relays)
  })

  it.runIf(HAS_PRLIMIT)(
    'a supervisor cannot restart a process, and does so once there are some',
    async () => {
      const here = await start()
      const supervisor = here.process.child.pid!
      const allow = (most: number) =>
        execFileSync('prlimit', ['--pid', String(supervisor), `--nofile=${most}:`])
      allow(8) // all of them are in use
      const pid = here.pidOf('relay-1')
      process.kill(pid, 'SIGKILL')
      const said = async () => (await pause(10), here.process.said())
      await polled(said, text => text.includes('it could not be started'), 'the log to say so')
      expect(runs(supervisor)).toBe(true)
      allow(1_024)
      await here.replaced('relay-1', pid)
      for (let n = 0; n < 4; n++) expect(await done(await ask(here))).toBe(true)
    },
  )

  it('for stdin, stdout and stderr a gateway serves, replaces a dead process, and stops', async () => {
    const gateway = await startBy('exec GATEWAY <&- >&- 2>&-')
    expect(await done(await ask(gateway))).toBe(true)
    process.kill(gateway.pids[0]!, 'SIGKILL')
    await ended([gateway.pids[0]!])
    await polled(gateway.isReady, Boolean, 'another owner')
    expect(await done(await ask(gateway))).toBe(true)
    expect(await gateway.stop()).toBe(0)
  })
})

describe('two thousand clients that connect and send nothing', () => {
  it('are disconnected after the headers timeout, and others are served meanwhile', async () => {
    const here = await start({ config: { server: { headersTimeoutMs: 2_000 } } })
    const { hostname, port } = new URL(here.url)
    let [open, closed] = [0, 0]
    // In batches that fit the kernel's accept queue: a client that it drops would notice only when it sends.
    for (let n = 0; n < 2_000; n += 100) {
      for (let m = 0; m < 100; m++)
        connect(Number(port), hostname)
          .on('error', () => {})
          .on('data', () => {})
          .once('connect', () => open++)
          .once('close', () => closed++)
      await eventually(() => open === n + 100, 'all to be connected')
    }
    expect(await done(await ask(here))).toBe(true)
    await polled(
      async () => (await pause(20), closed),
      count => count === 2_000,
      'all to be disconnected',
    )
    expect(await done(await ask(here))).toBe(true)
  })
})
