/** Processes that end at bad moments, again and again, or that have no file descriptors left: nothing hangs, nothing is left behind. */
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
const done = async (response: Response) => (await eventsOf(response)).at(-1) === '[DONE]'
const pause = (ms: number) => new Promise(resolve => setTimeout(resolve, ms))
/** Of a process, those that have not begun as well. */
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

describe('an owner that dies again and again', () => {
  it('also while it begins: streams go on, and when one holds all is as before', async () => {
    const here = await start({ decodeOptions: { gapMs: 10 } })
    const streams = await Promise.all(Array.from({ length: 8 }, () => ask(here, { max_tokens: 500 })))
    const supervisor = here.process.child.pid!
    const relays = new Set(['relay-1', 'relay-2'].map(here.pidOf))
    const killed = new Set<number>()
    // The second, the third and the fourth are killed before they are ready, or while relays declare what they have.
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
          'it to be ready',
        )
      killed.add(pid!)
      process.kill(pid!, 'SIGKILL')
    }
    await polled(
      async () => (await pause(5), here.pidOf('owner')),
      pid => !killed.has(pid),
      'one that holds',
    )
    for (const response of streams) expect(await done(response)).toBe(true)
    expect(await done(await ask(here))).toBe(true)
    await here.idle()
    expect(await counters(here)).toEqual([0, 0, 0])
  })

  it('together with relays: nothing is counted that is not there', async () => {
    const here = await start({ decodeOptions: { gapMs: 10 } })
    const streams = await Promise.all(Array.from({ length: 8 }, () => ask(here, { max_tokens: 300 })))
    const pids = ['owner', 'relay-1'].map(here.pidOf)
    for (const pid of pids) process.kill(pid, 'SIGKILL')
    const ends = await Promise.all(streams.map(response => done(response).catch(() => 'broke')))
    expect(new Set(ends)).toEqual(new Set([true, 'broke']))
    await here.replaced('owner', pids[0]!)
    await here.replaced('relay-1', pids[1]!)
    await here.idle()
    expect(await counters(here)).toEqual([0, 0, 0])
  })
})

describe('a supervisor that is told to stop', () => {
  it('while there is no owner lets streams end and leaves nothing behind', async () => {
    const here = await start({ decodeOptions: { gapMs: 10 } })
    const streams = await Promise.all(Array.from({ length: 4 }, () => ask(here, { max_tokens: 100 })))
    const supervisor = here.process.child.pid!
    const first = here.pidOf('owner')
    process.kill(first, 'SIGKILL')
    await here.replaced('owner', first)
    // The second time there is a pause before the next.
    process.kill(here.pidOf('owner'), 'SIGKILL')
    const rest = childrenOf(supervisor)
    const stopped = here.process.stop()
    for (const response of streams) expect(await done(response)).toBe(true)
    expect(await stopped).toBe(0)
    expect(rest.filter(runs)).toEqual([])
  })

  it('twice ends at once, with processes that hang too', async () => {
    const here = await start({ decodeOptions: { gapMs: 10 } })
    await Promise.all(Array.from({ length: 4 }, () => ask(here, { max_tokens: 2_000 })))
    const pids = NAMES.map(here.pidOf)
    process.kill(pids[1]!, 'SIGSTOP')
    const { child } = here.process
    const exited = once(child, 'exit')
    child.kill('SIGTERM')
    await polled(
      async () => (await pause(5), here.process.said()),
      said => said.includes('SIGTERM: stopping'),
      'the first to be heard',
    )
    child.kill('SIGTERM')
    expect((await exited)[0]).toBe(130)
    await ended(pids)
  })
})

describe('without file descriptors', () => {
  /** Workers, and a gateway that a shell starts. */
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

  it('a gateway lets connections go that it cannot take, and takes others when there is room', async () => {
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
    // More than there is room for: those are told, and not left waiting for nobody.
    await eventually(() => closed > 300, 'connections to be let go')
    for (const socket of sockets) socket.destroy()
    const served = async () => (await pause(20), ask(gateway).then(done, () => false))
    await polled(served, Boolean, `an answer: ${gateway.said()}`)
    for (let n = 0; n < 6; n++) expect(await done(await ask(gateway))).toBe(true)
    expect(gateway.pids.every(runs), gateway.said()).toBe(true)
    expect(await gateway.stop()).toBe(0)
  })

  it.runIf(HAS_PRLIMIT)(
    'relays do not leave clients waiting whose connections they could not be given',
    async () => {
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
      await eventually(() => closed >= 70, 'those to be let go for whom there is no room')
      for (const socket of sockets) socket.destroy()
      const served = async () => (await pause(20), ask(here).then(done, () => false))
      await polled(served, Boolean, 'an answer')
      expect(['relay-1', 'relay-2'].map(here.pidOf)).toEqual(relays)
    },
  )

  it.runIf(HAS_PRLIMIT)(
    'a supervisor cannot start a process anew, and does when there are some again',
    async () => {
      const here = await start()
      const supervisor = here.process.child.pid!
      const allow = (most: number) =>
        execFileSync('prlimit', ['--pid', String(supervisor), `--nofile=${most}:`])
      allow(8) // all of those are taken
      const pid = here.pidOf('relay-1')
      process.kill(pid, 'SIGKILL')
      const said = async () => (await pause(10), here.process.said())
      await polled(said, text => text.includes('it cannot be started'), 'the log to say so')
      expect(runs(supervisor)).toBe(true)
      allow(1_024)
      await here.replaced('relay-1', pid)
      for (let n = 0; n < 4; n++) expect(await done(await ask(here))).toBe(true)
    },
  )

  it('of its own input, output and log it serves, replaces who dies, and ends', async () => {
    const gateway = await startBy('exec GATEWAY <&- >&- 2>&-')
    expect(await done(await ask(gateway))).toBe(true)
    process.kill(gateway.pids[0]!, 'SIGKILL')
    await ended([gateway.pids[0]!])
    await polled(gateway.isReady, Boolean, 'another owner')
    expect(await done(await ask(gateway))).toBe(true)
    expect(await gateway.stop()).toBe(0)
  })
})

describe('two thousand clients that connect and say nothing', () => {
  it('are let go after their time, and others are served meanwhile', async () => {
    const here = await start({ config: { server: { headersTimeoutMs: 2_000 } } })
    const { hostname, port } = new URL(here.url)
    let [open, closed] = [0, 0]
    // In parts that the kernel's queue has room for: whom it drops from it would hear of that only by sending something.
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
      'all to be let go',
    )
    expect(await done(await ask(here))).toBe(true)
  })
})
