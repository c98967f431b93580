// Messages between replicas: bytes per second and CPU time, by rate, policy and model. Needs no store:
// messages are encoded and decoded as in gateways, in simulated time.
//
//   npm run build && node bench/replicas.mjs [--quick] [--seconds 20] [--workers 16] [--markdown]
//     [--trace data/lab16-task.evaluation.safetensors]
//
// --quick runs one second of each, as a smoke test. Requests take two seconds each. Expectations for lab16
// come from the counts of recorded requests; for the large model (58 × 256) the same counts are repeated,
// because there is no trace of one.
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { header, table } from './lib/table.mjs'

const root = fileURLToPath(new URL('..', import.meta.url))
const FLAGS = {
  quick: { type: 'boolean', default: false },
  seconds: { type: 'string' },
  workers: { type: 'string', default: '16' },
  markdown: { type: 'boolean', default: false },
  trace: { type: 'string', default: join(root, 'data', 'lab16-task.evaluation.safetensors') },
}
const options = readFlags()
const seconds = numberOf('seconds', options.seconds ?? (options.quick ? '1' : '20'), 3_600)
const workers = numberOf('workers', options.workers, 1_024)

function readFlags() {
  try {
    return parseArgs({ options: FLAGS }).values
  } catch (error) {
    return refuse(error.message)
  }
}

function numberOf(flag, text, most) {
  const value = Number(text)
  return Number.isInteger(value) && value >= 1 && value <= most
    ? value
    : refuse(`--${flag} ${text}: expected a whole number from 1 to ${most}`)
}

function refuse(words) {
  const flags = Object.entries(FLAGS).map(([name, { type }]) =>
    type === 'boolean' ? `--${name}` : `--${name} VALUE`,
  )
  console.error(`${words}\nThere are ${flags.join(', ')}.`)
  process.exit(2)
}

const load = path => import(join(root, 'dist', path))
const { openTrace } = await load('trace/trace.js')
const { createDecodePolicy } = await load('policy/create-policy.js')
const { LoadTracker } = await load('cluster/tickets.js')
const { createRandom } = await load('math/random.js')
const { UnionShare } = await load('gateway/scale/replicas/union-share.js')
const { OtherReplicas } = await load('gateway/scale/replicas/other-replicas.js')
const { decode, encode, workerKey } = await load('gateway/scale/replicas/messages.js')

const [PUBLISH_MS, UNION_MS, BYTES_PER_SECOND, REQUEST_MS] = [5, 20, 8 << 20, 2_000]
const trace = await openTrace(options.trace)
const { layers, experts, topK } = trace
const counts = await trace.prefillCounts()
await trace.close()
const cells = layers * experts
const rowsThere = counts.length / cells
const recorded = r =>
  Uint16Array.from(counts.subarray((r % rowsThere) * cells, ((r % rowsThere) + 1) * cells))

const LARGE = { layers: 58, experts: 256, topK: 8 }
function large(r) {
  const made = new Uint16Array(LARGE.layers * LARGE.experts)
  for (let l = 0; l < LARGE.layers; l++)
    for (let half = 0; half < LARGE.experts / experts; half++) {
      const from = ((r + 7 * half) % rowsThere) * cells + (l % layers) * experts
      made.set(counts.subarray(from, from + experts), l * LARGE.experts + half * experts)
    }
  return made
}
const MODELS = [
  { name: `lab16, ${layers} × ${experts}`, shape: { layers, experts, topK }, countsOf: recorded },
  { name: 'large, 58 × 256', shape: LARGE, countsOf: large },
]
const registry = {
  views: () =>
    Array.from({ length: workers }, (_, index) => ({
      spec: { id: `10.0.1.${index}:8000`, role: 'decode' },
      index,
      leaving: false,
    })),
}

function side(policyName, shape) {
  const policy = createDecodePolicy(policyName, { workers, shape })
  const share = new UnionShare(registry, () => [])
  share.policyChanged(policy)
  return { policy, share, tracker: new LoadTracker() }
}

/** CPU time, which other work on the machine affects little. */
function cpuMs() {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1000
}

function run(policyName, { shape, countsOf }, rate) {
  const random = createRandom(1)
  const [sender, reader] = [side(policyName, shape), side(policyName, shape)]
  const others = new OtherReplicas((...change) => reader.share.rowChanged(...change), {
    isKnown: () => true,
    cells: reader.share.cells,
  })
  const live = []
  const figures = { bytes: 0, messages: 0, makeMs: 0, readMs: 0 }
  let [nextMs, rowsDueMs, seq, sent] = [0, 0, 0, 0]
  const untilMs = 1000 * seconds + REQUEST_MS
  for (let nowMs = 0; nowMs < untilMs; nowMs += PUBLISH_MS) {
    let changed = false
    for (; live.length > 0 && live[0].endMs <= nowMs; changed = true) {
      const { request, worker, ticket } = live.shift()
      ticket.release()
      sender.policy.released?.(request, worker)
    }
    for (; nextMs <= nowMs; nextMs += (-1000 / rate) * Math.log(1 - random.uniform()), changed = true) {
      const request = { id: String(sent), counts: countsOf(sent++) }
      const candidates = Array.from({ length: workers }, (_, worker) => ({
        worker,
        inflight: sender.tracker.inflight(`10.0.1.${worker}:8000`, 'decode'),
      }))
      const { worker } = sender.policy.pick(request, candidates, { random: () => random.uniform() })
      sender.policy.dispatched?.(request, worker)
      live.push({
        request,
        worker,
        endMs: nowMs + REQUEST_MS,
        ticket: sender.tracker.take(`10.0.1.${worker}:8000`, 'decode', 500, nowMs),
      })
    }
    if (!changed && nowMs < rowsDueMs) continue
    const start = cpuMs()
    const rows = nowMs < rowsDueMs ? [] : sender.share.rows(seq === 0)
    const loads = Array.from(sender.tracker.loads(), ({ worker, leg, inflight, tokens }) => ({
      key: workerKey(leg, worker),
      inflight,
      tokens,
    }))
    const bytes = encode({
      kind: 'state',
      from: { id: 'a', boot: 1 },
      seq: ++seq,
      leaseMs: 3_000,
      loads,
      cells: sender.share.cells,
      whole: seq === 1,
      rows,
    })
    const made = cpuMs()
    others.received(decode(bytes).message, nowMs)
    const read = cpuMs()
    if (rows.length > 0) rowsDueMs = nowMs + Math.max(UNION_MS, (1000 * bytes.length) / BYTES_PER_SECOND)
    if (nowMs < REQUEST_MS) continue // until the number in flight is steady
    figures.bytes += bytes.length
    figures.messages++
    figures.makeMs += made - start
    figures.readMs += read - made
  }
  return {
    bytesPerSecond: figures.bytes / seconds,
    messagesPerSecond: figures.messages / seconds,
    makeUs: (1000 * figures.makeMs) / figures.messages,
    readUs: (1000 * figures.readMs) / figures.messages,
    share: figures.makeMs / 1000 / seconds,
    readShare: figures.readMs / 1000 / seconds,
  }
}

console.log(
  `${header(1)}; ${workers} decode workers, requests of ${REQUEST_MS / 1000} s, publishMs ${PUBLISH_MS}, unionMs ${UNION_MS}${options.quick ? '. Quick run: not for quoting' : ''}\n`,
)
const kb = bytes => (bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB/s` : `${(bytes / 1e6).toFixed(2)} MB/s`)
const rows = []
for (const model of MODELS)
  for (const policy of ['jsq', 'union'])
    for (const rate of [100, 1000]) {
      const { bytesPerSecond, messagesPerSecond, makeUs, readUs, share, readShare } = run(policy, model, rate)
      rows.push([
        model.name,
        policy,
        rate,
        kb(bytesPerSecond),
        messagesPerSecond.toFixed(0),
        `${makeUs.toFixed(0)} µs`,
        `${readUs.toFixed(0)} µs`,
        `${(100 * share).toFixed(1)} %`,
        `${(100 * readShare).toFixed(1)} %`,
      ])
    }
console.log(
  table(
    [
      'model',
      'policy',
      'requests/s',
      'bytes',
      'messages/s',
      'to make one',
      'to read one',
      'a core, making',
      'a core, reading one other',
    ],
    rows,
  )[options.markdown ? 'markdown' : 'text'],
)
