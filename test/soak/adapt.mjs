// Live recalibration on the embedded cluster: traffic switches twice and decoders die, with `adapt: on`. No
// request may be lost, each switch must end in a swap, and TPOT must come within 2 points of an artifact that
// was fitted for the traffic.
//
//   node test/soak/adapt.mjs [--minutes 1] [--speed 0.5] [--processes 1] [--json]
//
// From 10 minutes on, TPOT is compared in alternating slots with the fitted artifact; that takes a quiet
// machine. With fewer minutes each phase ends with its swap. Needs dist/ (npm run build).
import { mkdtempSync, rmSync } from 'node:fs'
import { request as httpRequest, Agent } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { fileURLToPath } from 'node:url'
import { writeArtifact } from '../../dist/fit/artifact-write.js'
import { fit, FIT_DEFAULTS } from '../../dist/fit/fit.js'
import { createStages } from '../../dist/fit/stages.js'
import { createRandom } from '../../dist/math/random.js'
import { withTrace } from '../../dist/trace/trace.js'
import { joinTraces } from './join-traces.mjs'
import { EmbeddedWorker, Gateway } from './processes.mjs'

const { values: options } = parseArgs({
  options: {
    minutes: { type: 'string', default: '1' },
    speed: { type: 'string', default: '0.5' },
    processes: { type: 'string', default: '1' },
    json: { type: 'boolean', default: false },
  },
})
const [minutes, speed] = [Number(options.minutes), Number(options.speed)]
const DECODERS = 4
/** Per decoder and second of profile time: batches of about twelve. */
const RATE = 25
const perSecond = RATE * DECODERS * speed
/** A switch must lead to a swap within this time, and to a TPOT like that of a fit. */
const SWAP_MS = 180_000
const AWAY_MS = 3_000
const SLOTS = 6
const COMPARES = minutes >= 10
/** Of the phases after the two switches, in a long run. */
const slotMs = ((minutes * 60_000 - 60_000) / 2 - SWAP_MS / 2) / (2 * SLOTS)
const MAX_WORSE = 0.02

const wait = ms => new Promise(resolve => setTimeout(resolve, ms))
const say = text => process.stderr.write(`${text}\n`)
const random = createRandom(1)
const folder = mkdtempSync(join(tmpdir(), 'eldr-soak-'))
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))
const data = name => fileURLToPath(new URL(`../../data/lab16-${name}.safetensors`, import.meta.url))
const trace = join(folder, 'both.safetensors')
const [taskRows, langRows] = await joinTraces([data('task.evaluation'), data('lang.evaluation')], trace)
const rowsOf = { task: { first: 0, count: taskRows }, lang: { first: taskRows, count: langRows } }
const artifactOf = {}
for (const mix of ['task', 'lang']) {
  const { artifact } = await withTrace(data(`${mix}.calibration`), opened =>
    fit(opened, { ...FIT_DEFAULTS, workers: DECODERS }, createStages()),
  )
  artifactOf[mix] = join(folder, `${mix}.artifact.safetensors`)
  await writeArtifact(artifactOf[mix], artifact)
}

const flags = role => ['--role', role, '--trace', trace, '--profile', 'h200-first', '--speed', `${speed}`]
const prefills = [1, 2].map(() => new EmbeddedWorker(flags('prefill')))
const decodes = Array.from({ length: DECODERS }, () => new EmbeddedWorker(flags('decode')))
await Promise.all([...prefills, ...decodes].map(worker => worker.start()))
const gateway = new Gateway()
await gateway.start({
  server: { port: 0, processes: Number(options.processes) },
  workers: { prefill: prefills.map(({ url }) => url), decode: decodes.map(({ url }) => url) },
  routing: { policy: 'eldr', artifact: artifactOf.task, profile: 'h200-first' },
  adapt: { mode: 'on', folder: join(folder, 'swaps'), watchMs: 30_000 },
  // A machine that is held up for a moment must not lose workers; a dead one refuses connections at once.
  health: { intervalMs: 1_000, timeoutMs: 10_000 },
  breaker: { openMs: 1_000 },
  observe: { logLevel: 'info', logFormat: 'json' },
})
const api = async (method, path, body) => {
  const response = await fetch(`${gateway.url}${path}`, {
    method,
    ...(body && { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
  })
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`)
  return response.json()
}
await until(async () => {
  const { prefill, decode } = await (await fetch(`${gateway.url}/ready`)).json()
  return prefill === prefills.length && decode === DECODERS
}, 30_000)

// A connection each: the gateway may close an idle one just when it is used again.
const agent = new Agent({ keepAlive: false })
const ends = { ok: 0, broken: 0, lost: 0 }
const problems = []
/** TPOT of streams by the end of each. */
const streams = []
let mix = 'task'
let running = 0
/** Requests on decoders when they died. */
let mayBreak = 0
const state = { sending: true }
const began = performance.now()
const load = sendAll()
const phases = []

say(`${perSecond} requests/s; traffic: task`)
await wait(COMPARES ? 30_000 : 8_000)
for (const next of ['lang', 'task']) phases.push(await phase(next))
state.sending = false
await load
await until(async () => running === 0, 60_000)
const view = await api('GET', '/eldr/adapt')
const metrics = await gateway.metrics()
await gateway.stop()
finish()

/** Switches the traffic, kills a decoder on the way, waits for the swap, and compares in a long run. */
async function phase(next) {
  const swapsBefore = (await api('GET', '/eldr/adapt')).swaps.length
  mix = next
  const switchedMs = performance.now()
  say(`${seconds()} traffic: ${next}`)
  const victim = decodes[phases.length + 1]
  const death = wait(2_000).then(async () => {
    const { workers } = await api('GET', '/eldr/workers')
    mayBreak += workers.find(({ url }) => url === victim.url).inflight
    await victim.kill()
    say(`${seconds()} a decoder died`)
    await wait(AWAY_MS)
    await victim.start()
  })
  const swapped = await until(
    async () => (await api('GET', '/eldr/adapt')).swaps.length > swapsBefore,
    SWAP_MS,
  )
  const swapMs = performance.now() - switchedMs
  await death
  const { swaps } = await api('GET', '/eldr/adapt')
  const { gain, gainHalf, judgedBy, file } = swaps[0] ?? {}
  say(
    swapped
      ? `${seconds()} swapped after ${(swapMs / 1000).toFixed(1)} s: ${(100 * gain).toFixed(1)} ± ${(100 * gainHalf).toFixed(1)} % (${judgedBy})`
      : `${seconds()} no swap`,
  )
  const found = { traffic: next, swapped, swapSeconds: swapMs / 1000, gain, gainHalf, judgedBy }
  if (!COMPARES || !swapped) return found
  // Settle until the time that the bar allows, then compare slot by slot.
  await wait(Math.max(0, SWAP_MS / 2 - (performance.now() - switchedMs)))
  const slots = []
  for (let slot = 0; slot < SLOTS; slot++) {
    await api('POST', '/eldr/artifact', { path: file })
    const adapted = await slotTpot()
    await api('POST', '/eldr/artifact', { path: artifactOf[next] })
    slots.push(adapted / (await slotTpot()) - 1)
  }
  const mean = slots.reduce((a, b) => a + b, 0) / SLOTS
  const variance = slots.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (SLOTS - 1)
  const half = 2.57 * Math.sqrt(variance / SLOTS)
  say(
    `${seconds()} TPOT against a fit for ${next}: ${(100 * mean).toFixed(1)} ± ${(100 * half).toFixed(1)} %`,
  )
  return { ...found, worse: mean, worseHalf: half }
}

/** Mean TPOT of the second part of a slot: the first has streams from before it. */
async function slotTpot() {
  await wait(slotMs / 4)
  const fromMs = performance.now()
  await wait((3 * slotMs) / 4)
  const within = streams.filter(({ atMs }) => atMs >= fromMs)
  return within.reduce((sum, { tpotMs }) => sum + tpotMs, 0) / within.length
}

/** Open loop: arrivals at random times. */
async function sendAll() {
  for (let atMs = 0; state.sending; atMs += (-Math.log(1 - random.uniform()) / perSecond) * 1000) {
    const earlyMs = atMs - (performance.now() - began)
    if (earlyMs > 1) await wait(earlyMs)
    running++
    void send().finally(() => running--)
  }
}

function send() {
  const { first, count } = rowsOf[mix]
  const row = first + random.below(count)
  const body = JSON.stringify({
    prompt: `request of row ${row} `.repeat(8),
    stream: true,
    eldr_row: row,
    max_tokens: 64,
  })
  return new Promise(resolve => {
    let [text, firstMs, lastMs, tokens] = ['', 0, 0, 0]
    const end = how => {
      ends[how]++
      if (how === 'lost') problems.push(text.slice(-200))
      if (how === 'ok' && tokens > 1)
        streams.push({ atMs: performance.now(), tpotMs: (lastMs - firstMs) / (tokens - 1) })
      resolve()
    }
    const request = httpRequest(
      `${gateway.url}/v1/completions`,
      { method: 'POST', agent, headers: { 'content-type': 'application/json' } },
      response => {
        response.setEncoding('utf8')
        response.on('data', part => {
          lastMs = performance.now()
          if (firstMs === 0) firstMs = lastMs
          tokens += part.split('data: {').length - 1
          text = (text + part).slice(-400)
        })
        response.on('close', () => {
          // A stream that a dead decoder had begun ends with the gateway's error event.
          if (text.includes('ELDR_STREAM_BROKEN')) end('broken')
          else end(response.statusCode === 200 && text.includes('[DONE]') ? 'ok' : 'lost')
        })
      },
    )
    request.on('error', error => {
      text = String(error)
      end('lost')
    })
    request.end(body)
  })
}

async function until(holds, mostMs) {
  for (const endMs = performance.now() + mostMs; performance.now() < endMs; await wait(100))
    if (await holds()) return true
  return holds()
}

function seconds() {
  return `${((performance.now() - began) / 1000).toFixed(0).padStart(4)} s `
}

function finish() {
  const swaps = phases.filter(({ swapped }) => swapped).length
  const check = (what, found, ok) => ({ what, found, ok })
  const checks = [
    check('requests lost', ends.lost, ends.lost === 0),
    check('requests that never ended', running, running === 0),
    // A few more may begin between the count and the death.
    check(
      `broken streams, of ${mayBreak} on decoders that died`,
      ends.broken,
      ends.broken <= 1.2 * mayBreak + 5,
    ),
    check('swaps accepted', swaps, swaps >= 2),
    check('swaps rolled back', view.swaps.filter(({ state }) => state === 'rolled_back').length, true),
    check(
      'tickets leaked',
      metrics.get('eldr_ticket_leaks_total') ?? 0,
      (metrics.get('eldr_ticket_leaks_total') ?? 0) === 0,
    ),
    check('errors in the log', gateway.errors.length, gateway.errors.length === 0),
    ...phases
      .filter(({ worse }) => worse !== undefined)
      .map(({ traffic, worse, worseHalf }) =>
        check(
          `TPOT on ${traffic} against a fit made for it`,
          `${(100 * worse).toFixed(1)} ± ${(100 * worseHalf).toFixed(1)} %`,
          worse <= MAX_WORSE,
        ),
      ),
  ]
  const passed = checks.every(({ ok }) => ok)
  if (options.json)
    process.stdout.write(`${JSON.stringify({ passed, speed, perSecond, ends, phases, checks }, null, 2)}\n`)
  else {
    process.stdout.write(
      `${checks.map(({ what, found, ok }) => `${ok ? 'ok  ' : 'FAIL'}  ${what}: ${found}`).join('\n')}\n`,
    )
    process.stdout.write(`${ends.ok} complete responses in ${seconds().trim()}\n`)
  }
  if (!passed) say([...gateway.errors.slice(0, 3), ...problems.slice(0, 3)].join('\n'))
  process.exit(passed ? 0 : 1)
}
