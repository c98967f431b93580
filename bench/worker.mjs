// CPU time of a decode step of the embedded worker's replay back end, compared with a plain implementation
// with sets, and how precisely steps keep their time.
//
//   node bench/worker.mjs [--quick] [--json FILE] [--out docs/evidence/benchmarks-worker.md] [--dist DIR]
//
// Every sequence follows a row of lab16-task and has a prompt of 300 tokens. `step` is the back end only:
// experts of the batch, their union, KV, next tokens, step time. `whole` is the engine with scheduler and
// events, in simulated time, per step. `counted` is `whole` on a worker that also stores experts per KV
// block. The plain one builds a set of experts per layer.
import { readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'
import { median } from './lib/measure.mjs'
import { header, mb, ms, table, times, us } from './lib/table.mjs'

const root = fileURLToPath(new URL('..', import.meta.url))
const { values: options } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    json: { type: 'string' },
    out: { type: 'string' },
    dist: { type: 'string', default: join(root, 'dist') },
  },
})
const load = file => import(pathToFileURL(join(resolve(options.dist), file)).href)
const [{ createEngine }, { createReplay }, { openTrace }, { parseProfile }] = await Promise.all([
  load('worker/engine/engine.js'),
  load('worker/replay/replay.js'),
  load('trace/trace.js'),
  load('cost/profile-file.js'),
])
const profile = parseProfile('h200-first', readFileSync(join(root, 'profiles/h200-first.json'), 'utf8'))
const tracePath = join(root, 'data/lab16-task.evaluation.safetensors')
const PROMPT = 300
const ROUNDS = options.quick ? 200 : 2_000

const request = (n, maxTokens) => ({
  id: `${n}`,
  promptIds: Int32Array.from({ length: PROMPT }, (_, i) => (7 * i + 13 * n) % 900),
  maxTokens,
  minTokens: 0,
  ignoreEos: true,
  stopTokenIds: new Set(),
  temperature: 0,
  topK: 0,
  topP: 1,
  seed: undefined,
  row: n % 400,
  keepForDecode: false,
  remote: undefined,
  recordDecode: false,
})
const replay = async speed => createReplay({ trace: await openTrace(tracePath), profile, speed })

async function stepMs(batch) {
  const backEnd = await replay(1)
  const blocksEach = Math.ceil((PROMPT + 48) / 16)
  backEnd.allocate(batch * blocksEach, 16)
  const items = await Promise.all(
    Array.from({ length: batch }, async (_, n) => {
      const asked = request(n, 48)
      const ids = new Int32Array(PROMPT + 48)
      ids.set(asked.promptIds)
      return {
        sequence: await backEnd.prepare(asked),
        request: asked,
        ids,
        length: PROMPT + 1,
        from: PROMPT,
        to: PROMPT + 1,
        blocks: Int32Array.from({ length: blocksEach }, (_, b) => n * blocksEach + b),
        decode: true,
        record: undefined,
      }
    }),
  )
  const samples = []
  for (let round = 0; round < ROUNDS; round++) {
    const step = items.map(item => ({
      ...item,
      length: PROMPT + 1 + (round % 48),
      from: PROMPT + (round % 48),
      to: PROMPT + 1 + (round % 48),
    }))
    const from = performance.now()
    backEnd.step(step, undefined)
    samples.push(performance.now() - from)
  }
  await backEnd.close()
  return median(samples)
}

/** The union only, with sets. */
async function plainMs(batch) {
  const trace = await openTrace(tracePath)
  const { layers, topK } = trace
  const rows = await Promise.all(
    Array.from({ length: batch }, (_, n) => trace.decodeExpertIds(n % 400, (n % 400) + 1)),
  )
  const samples = []
  for (let round = 0; round < ROUNDS; round++) {
    const step = round % 48
    const from = performance.now()
    let active = 0
    for (let layer = 0; layer < layers; layer++) {
      const union = new Set()
      for (const ids of rows)
        for (let k = 0; k < topK; k++) union.add(ids[(step * layers + layer) * topK + k])
      active += union.size
    }
    samples.push(performance.now() - from)
    if (active === 0) throw new Error('no experts')
  }
  await trace.close()
  return median(samples)
}

/** A clock that jumps to the next timer. */
function jumpingClock() {
  let nowMs = 0
  return {
    now: () => nowMs,
    at: (deadline, run) =>
      setImmediate(() => {
        nowMs = Math.max(nowMs, deadline)
        run()
      }),
    soon: run => setImmediate(run),
    after: (_, run) => (setImmediate(run), () => {}),
    cancel() {},
  }
}

async function wholeMs(batch, capture) {
  const tokens = options.quick ? 150 : 600
  const settings = {
    blocks: batch * Math.ceil((PROMPT + tokens + 1) / 16),
    blockTokens: 16,
    maxBatchedTokens: 1e6,
    maxSeqs: 256,
    prefixCaching: true,
    capture,
    halfLife: 64,
  }
  const engine = createEngine(await replay(1), settings, jumpingClock())
  let begin = process.cpuUsage()
  let firstStep = 0
  await Promise.all(
    Array.from(
      { length: batch },
      (_, n) =>
        new Promise(done => {
          let made = 0
          engine.generate(request(n, tokens), {
            onToken: () => {
              if (n === 0 && ++made === tokens / 3)
                [begin, firstStep] = [process.cpuUsage(), engine.stats().steps]
            },
            onEnd: () => done(undefined),
          })
        }),
    ),
  )
  const { user, system } = process.cpuUsage(begin)
  const perStep = (user + system) / 1_000 / (engine.stats().steps - firstStep)
  await engine.close()
  return perStep
}

async function keepsTime(batch, seconds) {
  const settings = {
    blocks: 4_096,
    blockTokens: 16,
    maxBatchedTokens: 8_192,
    maxSeqs: 256,
    prefixCaching: true,
    capture: false,
    halfLife: undefined,
  }
  const engine = createEngine(await replay(1), settings)
  let stopping = false
  let n = 0
  const next = () => {
    if (!stopping) engine.generate(request(n++, 200), { onToken() {}, onEnd: next })
  }
  for (let i = 0; i < batch; i++) next()
  const cpuBefore = process.cpuUsage()
  await new Promise(done => setTimeout(done, 1_000 * seconds))
  const { user, system } = process.cpuUsage(cpuBefore)
  stopping = true
  const { timing } = engine.stats()
  await engine.close()
  return {
    ...timing,
    drift: timing.takenMs / timing.modelledMs - 1,
    cores: (user + system) / 1e6 / seconds,
    residentBytes: process.memoryUsage().rss,
  }
}

const about = header(1)
console.log(about)
const data = { cost: [], time: [] }
for (const batch of [1, 8, 25, 64]) {
  const [step, plain] = [await stepMs(batch), await plainMs(batch)]
  data.cost.push({
    batch,
    step,
    plain,
    whole: await wholeMs(batch, false),
    counted: await wholeMs(batch, true),
  })
}
for (const batch of [1, 25]) data.time.push({ batch, ...(await keepsTime(batch, options.quick ? 3 : 15)) })
const percent = value => `${(100 * value).toFixed(2)} %`
const parts = [
  {
    title: 'What a decode step costs: 16 layers, 128 experts, top-8',
    note: 'Median. Step: the back end. Sets: the union alone, as one would write it first. Whole: with scheduler and events, on a decode worker; counted: on one that keeps experts by KV block.',
    ...table(
      ['batch', 'step', 'sets', 'ratio', 'whole', 'counted'],
      data.cost.map(({ batch, step, plain, whole, counted }) => [
        batch,
        us(step),
        us(plain),
        times(plain, step),
        us(whole),
        us(counted),
      ]),
    ),
  },
  {
    title: 'How steps keep their time: one worker at real speed',
    note: 'With whatever else ran on the machine. Error: of the time between two ends of steps, against the modelled time.',
    ...table(
      ['batch', 'steps', 'modelled', 'error p50', 'error p99', 'drift', 'cores', 'resident'],
      data.time.map(row => [
        row.batch,
        row.steps,
        ms(row.modelledMs / row.steps),
        percent(row.errorP50),
        percent(row.errorP99),
        percent(row.drift),
        row.cores.toFixed(3),
        mb(row.residentBytes),
      ]),
    ),
  },
]
for (const { title, note, text } of parts) console.log(`\n── ${title}\n${note}\n\n${text}`)
if (options.json) writeFileSync(options.json, `${JSON.stringify({ about, ...data }, null, 2)}\n`)
if (options.out) {
  const page = [
    '# Benchmarks of the embedded worker',
    'Written by `node bench/worker.mjs --out`.',
    about,
    ...parts.flatMap(({ title, note, markdown }) => [`## ${title}`, note, markdown]),
  ]
  writeFileSync(options.out, `${page.join('\n\n')}\n`)
}
