// Cost of tracing per request: CPU time of a thread that does nothing else.
//
//   node bench/tracing.mjs [--quick] [--dist DIR]
//
// off: only the check for a tracer. not sampled: an id is generated and sent to the workers. sampled: four
// spans with attributes and the exported text. The export itself is not included; see bench/gateway for the
// whole request.
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'
import { median } from './lib/measure.mjs'
import { header, table } from './lib/table.mjs'

const root = fileURLToPath(new URL('..', import.meta.url))
const { values: options } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    dist: { type: 'string', default: join(root, 'dist') },
  },
})
const load = name => import(pathToFileURL(join(options.dist, 'gateway', 'tracing', `${name}.js`)).href)
const { Tracer } = await load('tracer')
const { routed, legEnded } = await load('leg-spans')
const { beginTrace, endTrace } = await load('server-span')
const { RequestFacts } = await import(pathToFileURL(join(options.dist, 'gateway', 'request-facts.js')).href)

const route = { kind: 'generate', api: 'completions', path: '/v1/completions' }
const place = {
  dispatch: { worker: { id: 'd0' } },
  decision: { reason: 'band_hit', band: 2 },
  policy: 'eldr',
  similarity: 0.9,
  covered: 1,
}
const end = { kind: 'served', status: 200 }
let bytes = 0
const sink = { add: text => (bytes += text.length), missed: () => {} }

/** As handle.ts and generate.ts do. */
function request(tracer) {
  const exchange = {
    id: 'f0a1c7c4-3f1c-4d0e-9f86-0e3b1d4b8c11',
    startedMs: performance.now(),
    request: { method: 'POST', headers: {}, httpVersion: '1.1', socket: {} },
    response: { headersSent: true, statusCode: 200 },
    facts: new RequestFacts(),
    trace: undefined,
  }
  if (tracer !== undefined) beginTrace(tracer, exchange, route)
  const prefill = exchange.trace?.leg('prefill', 'p0', 1)
  if (prefill !== undefined) legEnded(prefill, end, undefined, 0)
  if (exchange.trace !== undefined) routed(exchange.trace, place, performance.now())
  const decode = exchange.trace?.leg('decode', 'd0', 1)
  if (decode !== undefined) {
    decode.event('first_token', performance.now())
    legEnded(decode, end, undefined, 16)
  }
  if (tracer !== undefined) endTrace(tracer, exchange, 'ok')
}

function microseconds(tracer) {
  const [rounds, times] = options.quick ? [5, 5_000] : [15, 20_000]
  const each = []
  for (let round = 0; round < rounds; round++) {
    const from = process.cpuUsage()
    for (let at = 0; at < times; at++) request(tracer)
    const { user, system } = process.cpuUsage(from)
    each.push((user + system) / times)
  }
  return median(each)
}

console.log(header(0))
const ways = [
  ['off', undefined],
  ['on, not sampled', new Tracer(sink, 0)],
  ['on, sampled', new Tracer(sink, 1)],
].map(([name, tracer]) => [name, microseconds(tracer)])
const [[, off]] = ways
console.log(
  table(
    ['traces', 'CPU µs per request', 'more than off'],
    ways.map(([name, us]) => [name, us.toFixed(2), (us - off).toFixed(2)]),
  ).text,
)
bytes = 0
request(new Tracer(sink, 1))
console.log(`\nText of one trace: ${bytes} bytes.`)
