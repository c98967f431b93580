// Cost of new connections: each requests /health once and closes. One process accepts them itself; with
// relays the supervisor hands each over. Also the memory of all processes, idle and with many idle
// connections.
//
//   npm run build && node bench/connections.mjs [--relays 1,2] [--repeat 3] [--count-ms 3000] [--at-once 64]
//     [--idle 2000]
import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { connect } from 'node:net'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { median } from './lib/measure.mjs'
import { table } from './lib/table.mjs'

const { values: options } = parseArgs({
  options: {
    relays: { type: 'string', default: '1,2' },
    repeat: { type: 'string', default: '3' },
    'count-ms': { type: 'string', default: '3000' },
    'at-once': { type: 'string', default: '64' },
    idle: { type: 'string', default: '2000' },
  },
})
const PROGRAM = fileURLToPath(new URL('../dist/cli/main.js', import.meta.url))
const ASK = 'GET /health HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n'
const [countMs, atOnce, idle] = [
  Number(options['count-ms']),
  Number(options['at-once']),
  Number(options.idle),
]

async function start(relays) {
  // These workers do not exist; /health does not need them.
  const flags = [
    'serve',
    '--port',
    '0',
    '--processes',
    relays,
    '--prefill',
    'http://127.0.0.1:9',
    '--decode',
    'http://127.0.0.1:10',
  ]
  const child = spawn(process.execPath, [PROGRAM, ...flags], { stdio: ['ignore', 'ignore', 'pipe'] })
  const port = await new Promise((resolve, reject) => {
    let said = ''
    child.stderr.on('data', chunk => {
      said += chunk
      const found = /listening on http:\/\/[^:]+:(\d+)/.exec(said)?.[1]
      if (found !== undefined) resolve(Number(found))
    })
    child.once('exit', () => reject(new Error(said)))
  })
  const pids = () => [
    child.pid,
    ...readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8')
      .trim()
      .split(' ')
      .filter(Boolean),
  ]
  return { child, port, pids }
}

/** Resolves to true if a response arrived. */
function once(port) {
  return new Promise(resolve => {
    let text = ''
    const socket = connect(port, '127.0.0.1', () => socket.write(ASK))
    socket.setEncoding('latin1').on('data', chunk => (text += chunk))
    socket.on('error', () => {}).once('close', () => resolve(text.startsWith('HTTP/1.1 200')))
  })
}

const cpuMs = pids =>
  pids.reduce((sum, pid) => {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ')
    return sum + 10 * (Number(fields[11]) + Number(fields[12])) // Linux counts in units of 10 ms
  }, 0)
const privateMiB = pids =>
  pids.reduce(
    (sum, pid) =>
      sum + Number(/Pss: +(\d+)/.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'))[1]) / 1024,
    0,
  )

async function measure(relays) {
  const { child, port, pids } = await start(relays)
  const atRestMiB = privateMiB(pids())
  const lanes = async untilMs => {
    let [done, failed] = [0, 0]
    const lane = async () => {
      while (performance.now() < untilMs)
        if (await once(port)) done++
        else failed++
    }
    await Promise.all(Array.from({ length: atOnce }, lane))
    return { done, failed }
  }
  await lanes(performance.now() + 500)
  const [beforeCpu, beforeMs] = [cpuMs(pids()), performance.now()]
  const { done, failed } = await lanes(beforeMs + countMs)
  const seconds = (performance.now() - beforeMs) / 1000
  const cpu = cpuMs(pids()) - beforeCpu
  const sockets = await Promise.all(
    Array.from(
      { length: idle },
      () =>
        new Promise(resolve => {
          const socket = connect(port, '127.0.0.1', () => resolve(socket)).on('error', () => {})
        }),
    ),
  )
  await once(port) // after all of them
  const withIdleMiB = privateMiB(pids())
  for (const socket of sockets) socket.destroy()
  const exited = new Promise(resolve => child.once('exit', resolve))
  child.kill('SIGTERM')
  await exited
  return { perSecond: done / seconds, failed, cpuUs: (1000 * cpu) / done, atRestMiB, withIdleMiB }
}

const kinds = options.relays.split(',')
const results = new Map(kinds.map(relays => [relays, []]))
for (let n = 0; n < Number(options.repeat); n++)
  for (const relays of kinds) results.get(relays).push(await measure(relays))
const middle = (runs, what) => median(runs.map(run => run[what]))
console.log(
  table(
    [
      'processes',
      'connections/s',
      'CPU of each',
      'failed',
      'memory at rest',
      `with ${idle} that say nothing`,
    ],
    [...results].map(([relays, runs]) => [
      relays === '1' ? 'one' : `${relays} relays, owner, supervisor`,
      middle(runs, 'perSecond').toFixed(0),
      `${middle(runs, 'cpuUs').toFixed(0)} µs`,
      String(runs.reduce((sum, { failed }) => sum + failed, 0)),
      `${middle(runs, 'atRestMiB').toFixed(0)} MiB`,
      `${middle(runs, 'withIdleMiB').toFixed(0)} MiB`,
    ]),
  ).text,
)
