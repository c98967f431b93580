// Closed loop of streams on raw sockets, one process: each stream sends its request again as soon as the
// answer is over. It samples the CPU time of the router and of the workers itself, at the two ends of the
// time that counts, and prints one line of JSON.
//
//   node bench/gateway/load-client.mjs '{"url":"http://127.0.0.1:8000","streams":64,"promptBytes":1024,
//     "tokens":16,"warmUpMs":1000,"countMs":2500,"router":PID,"workers":[PID,…]}'
//
// `warmUpRequests` and `mostWarmUpMs`: the warm-up ends after this many responses or this time.
//
// With `direct: {prefill: [url, …], decode: [url, …]}` in place of `url` the client does both legs itself,
// which no router can beat. `direct` without prefill is one hop, for routers that make one.
import { Stream } from './lib/stream.mjs'
import { cpuSeconds, machineSeconds, residentBytes, tree } from './lib/proc.mjs'
import { inTurn } from './lib/pd.mjs'

const MAX_ERRORS = 100
const LOOK_MS = 50
const plan = JSON.parse(process.argv[2] ?? '{}')
const { streams, warmUpMs, warmUpRequests = 0, mostWarmUpMs = warmUpMs, countMs, router, workers = [] } = plan

const counted = { requests: 0, tokens: 0, errors: 0, ttftMs: [] }
let firstError
let counting = false
let warmUpLeft = warmUpRequests

const on = {
  tokens: count => {
    if (counting) counted.tokens += count
  },
  end: ttftMs => {
    warmUpLeft--
    if (!counting) return
    counted.requests++
    counted.ttftMs.push(ttftMs)
  },
  error: message => {
    firstError ??= message
    if (++counted.errors > MAX_ERRORS) finish() // a router that only returns errors is not measured
  },
}
/** The workers in turn if the client goes direct, otherwise the router. */
function targetsOf({ url, direct }) {
  if (direct === undefined) return { decode: () => url }
  return { prefill: direct.prefill && inTurn(direct.prefill), decode: inTurn(direct.decode) }
}
const targets = targetsOf(plan)
const all = Array.from({ length: streams }, (_, index) => new Stream(index, plan, targets, on))
// Spread over half of the warm-up, so that paced streams do not tick together.
all.forEach((stream, index) => setTimeout(() => stream.start(), (index / streams) * (warmUpMs / 2)))

let begun
const pids = router === undefined ? [] : tree(router)
const sample = () => ({
  atMs: performance.now(),
  client: process.cpuUsage(),
  router: cpuSeconds(pids),
  workers: cpuSeconds(workers),
  machine: machineSeconds(),
})

/**
 * Warm-up is counted in requests, not time: just-in-time compilation depends on them, and a busy machine
 * serves few per second.
 */
function warmUp(waitedMs) {
  if (warmUpLeft > 0 && waitedMs < mostWarmUpMs) return setTimeout(() => warmUp(waitedMs + LOOK_MS), LOOK_MS)
  begun = sample()
  counting = true
  return setTimeout(finish, countMs)
}
setTimeout(() => warmUp(warmUpMs), warmUpMs)

function finish() {
  const ended = sample()
  counting = false
  const rssBytes = residentBytes(pids)
  const wallS = (ended.atMs - (begun?.atMs ?? ended.atMs)) / 1e3
  const used = process.cpuUsage(begun?.client)
  const clientCpuS = (used.user + used.system) / 1e6
  const [routerCpuS, workersCpuS, machineS] = ['router', 'workers', 'machine'].map(
    who => ended[who] - (begun?.[who] ?? ended[who]),
  )
  const ttft = Float64Array.from(counted.ttftMs).sort()
  const at = share => ttft[Math.min(ttft.length - 1, Math.floor(share * ttft.length))]
  const result = {
    warmedBy: warmUpRequests - warmUpLeft - counted.requests,
    requests: counted.requests,
    tokens: counted.tokens,
    errors: counted.errors,
    firstError,
    wallS,
    clientCpuS,
    routerCpuS,
    workersCpuS,
    othersCpuS: Math.max(0, machineS - routerCpuS - workersCpuS - clientCpuS),
    rssBytes,
    ttftMs: { p50: at(0.5), p99: at(0.99) },
  }
  process.stdout.write(`${JSON.stringify(result)}\n`, () => process.exit())
}
