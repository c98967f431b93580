// A gateway under sustained load, with clients that leave and workers that die and hang: at the end nothing
// may be left over.
//
//   npm run test:soak -- --minutes 10 [--json] [--seed 1] [--rate REQUESTS_PER_SECOND]
//
// Default rate: 70 % of what the clients reach in a closed loop before. Needs dist/ (npm run build).
import { parseArgs } from 'node:util'
import { createRandom, Mix } from './mix.mjs'
import { Gateway, Worker } from './processes.mjs'
import { checksOf, median, table, Tally } from './report.mjs'

const { values: options } = parseArgs({
  options: {
    minutes: { type: 'string', default: '10' },
    seed: { type: 'string', default: '1' },
    rate: { type: 'string' },
    json: { type: 'boolean', default: false },
  },
})
const totalMs = Number(options.minutes) * 60_000
if (!(totalMs > 0)) throw new Error(`--minutes ${options.minutes}: expected a number above 0`)
const SHARE_OF_PEAK = 0.7
const [WARM_UP_MS, PEAK_MS, PEAK_CLIENTS] = [10_000, 5_000, 64]
/** How long a worker is away. */
const AWAY_MS = 10_000
const [KILL_AT_MS, HANG_AT_MS] = [15_000, 35_000]
/** Longer than any request may take: the gateway times out hanging ones. */
const LAST_ENDS_MS = 30_000

const random = createRandom(Number(options.seed))
const wait = ms => new Promise(resolve => setTimeout(resolve, ms))
const say = text => process.stderr.write(`${text}\n`)

const pace = ['--first-token-ms', '5', '--gap-ms', '5', '--prefill-ms', '5']
const prefills = [1, 2].map(() => new Worker('prefill', [...pace, '--counts', '4x16x4']))
const decodes = [1, 2, 3].map(() => new Worker('decode', pace))
const workers = [...decodes, ...prefills]
const gateway = new Gateway()
await Promise.all(workers.map(worker => worker.start()))
await gateway.start({
  server: { port: 0, maxBodyBytes: 262_144, shutdownGraceMs: 5_000 },
  workers: { prefill: prefills.map(({ url }) => url), decode: decodes.map(({ url }) => url) },
  timeouts: {
    connectMs: 1_000,
    prefillMs: 3_000,
    firstTokenMs: 3_000,
    betweenTokensMs: 3_000,
    requestMs: 20_000,
  },
  health: { intervalMs: 1_000, timeoutMs: 1_000 },
  breaker: { openMs: 2_000 },
  observe: { logLevel: 'info', logFormat: 'json' },
})
const mix = new Mix(gateway.url, random)
await ready()
const peak = options.rate === undefined ? await measurePeak() : undefined
const rate = peak === undefined ? Number(options.rate) : peak * SHARE_OF_PEAK
say(
  `${peak === undefined ? '' : `${peak.toFixed(0)} requests/s peak; `}${rate.toFixed(0)} requests/s for ${options.minutes} min`,
)

const minutes = []
const resident = []
/** Lowest memory after garbage collection: heap and buffers. */
const kept = []
const startMs = performance.now()
const now = () => minutes[Math.min(minutes.length - 1, Math.floor((performance.now() - startMs) / 60_000))]
for (let ms = 0; ms < totalMs; ms += 60_000) minutes.push(new Tally())
const watch = setInterval(() => void look().catch(() => {}), 1_000)
await Promise.all([load(), trouble()])
clearInterval(watch)
const ended = await until(() => mix.pending.size === 0, LAST_ENDS_MS)
if (!ended) say(`${mix.pending.size} requests did not end`)
await finish()

/** Waits until all workers are ready at the gateway. */
async function ready() {
  const all = async () => {
    const { prefill, decode } = await (await fetch(`${gateway.url}/ready`)).json()
    return prefill === prefills.length && decode === decodes.length
  }
  if (!(await until(all, 30_000))) throw new Error('the workers did not become ready')
}

async function until(holds, mostMs) {
  for (const endMs = performance.now() + mostMs; performance.now() < endMs; await wait(50))
    if (await holds()) return true
  return holds()
}

/** Requests per second in a closed loop, after a warm-up. */
async function measurePeak() {
  const beganMs = performance.now()
  let count = 0
  const loop = async () => {
    while (performance.now() < beganMs + WARM_UP_MS + PEAK_MS) {
      await mix.send()
      if (performance.now() >= beganMs + WARM_UP_MS) count++
    }
  }
  await Promise.all(Array.from({ length: PEAK_CLIENTS }, loop))
  return (count / (performance.now() - beganMs - WARM_UP_MS)) * 1000
}

/** Open loop: arrivals at random times, independent of earlier requests. */
async function load() {
  for (
    let atMs = 0;
    atMs < totalMs && gateway.exitCode === undefined;
    atMs += (-Math.log(1 - random()) / rate) * 1000
  ) {
    const lateMs = atMs - (performance.now() - startMs)
    if (lateMs > 1) await wait(lateMs)
    const minute = now()
    void mix.send().then(one => minute.add(one))
  }
}

/** Waits until this long after the start. */
function waitFor(ms) {
  return wait(Math.max(0, ms - (performance.now() - startMs)))
}

/** Every minute one worker is killed and one is suspended, in turn; both return. */
async function trouble() {
  for (let minute = 0; minute * 60_000 < totalMs; minute++) {
    await waitFor(minute * 60_000 + KILL_AT_MS)
    const victim = workers[(2 * minute) % workers.length]
    await victim.kill()
    now().faults.push(`killed ${workers.indexOf(victim)}`)
    await wait(AWAY_MS)
    await victim.start()
    await waitFor(minute * 60_000 + HANG_AT_MS)
    const sleeper = workers[(2 * minute + 3) % workers.length]
    sleeper.hang()
    now().faults.push(`hung ${workers.indexOf(sleeper)}`)
    await wait(AWAY_MS)
    sleeper.goOn()
  }
}

async function look() {
  const metrics = await gateway.metrics()
  resident.push(metrics.get('process_resident_memory_bytes'))
  kept.push(metrics.get('nodejs_heap_size_used_bytes') + metrics.get('nodejs_external_memory_bytes'))
  now().residentBytes.push(resident.at(-1))
}

async function finish() {
  mix.close()
  const names = [
    'eldr_running_requests',
    'eldr_queue_length',
    'eldr_worker_inflight',
    'eldr_worker_inflight_tokens',
  ]
  const gaugesOf = metrics => Object.fromEntries(names.map(name => [name, metrics.get(name) ?? NaN]))
  const idle = async () => Object.values(gaugesOf(await gateway.metrics())).every(value => value === 0)
  const died = gateway.exitCode !== undefined
  if (!died) await until(idle, LAST_ENDS_MS)
  const metrics = died ? new Map() : await gateway.metrics()
  const counters = await Promise.all(workers.map(worker => worker.counters()))
  await gateway.stop()
  // A new process grows to what its load needs, so the first 20 seconds are not compared. The lowest values
  // are compared, because between two collections memory contains garbage, more so on a busy machine.
  const warm = kept.slice(Math.min(20, Math.floor(kept.length / 3)))
  const seconds = Math.min(60, Math.floor(warm.length / 2))
  const checks = checksOf({
    minutes,
    pending: [...mix.pending.values()],
    lost: mix.lost,
    gauges: gaugesOf(metrics),
    workers: counters,
    metrics,
    kept: {
      seconds,
      first: Math.min(...warm.slice(0, seconds)),
      last: Math.min(...warm.slice(-seconds)),
      resident: median(resident),
    },
    gateway,
    exitCode: gateway.exitCode,
  })
  const passed = checks.every(({ ok }) => ok)
  const retries = metrics.get('eldr_retries_total') ?? 0
  if (options.json)
    process.stdout.write(`${JSON.stringify({ passed, peak, rate, retries, minutes, checks }, null, 2)}\n`)
  else {
    const lines = checks.map(
      ({ what, found, ok, more }) =>
        `${ok ? 'ok  ' : 'FAIL'}  ${what}: ${found}${ok || !more ? '' : `  ${JSON.stringify(more)}`}`,
    )
    process.stdout.write(`${table(minutes)}\n\n${lines.join('\n')}\n\n${retries} retries\n`)
  }
  process.exit(passed ? 0 : 1) // workers exit with this process, which holds their standard input
}
