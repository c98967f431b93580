// Time of a decode step of the tiny back end on one thread: SIMD kernel, plain JavaScript loops and PyTorch;
// time by part; and step time by distinct experts in the batch.
//
//   ELDR_BENCH_TORCH_PYTHON=python3 node bench/tiny.mjs [--quick] [--cpu] [--json FILE] [--out docs/evidence/benchmarks-tiny.md] [--dist DIR]
//
// The interpreter needs torch and safetensors, and transformers for the third column; without the variable
// that comparison is left out.
// --cpu measures CPU time instead of wall time, for busy machines; not for published figures.
// Every sequence has a prompt of 96 tokens from reference.json, and all variants must generate the same
// greedy text.
import { spawn } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'
import { median } from './lib/measure.mjs'
import { header, ms, table, times } from './lib/table.mjs'

const root = fileURLToPath(new URL('..', import.meta.url))
const { values: options } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    cpu: { type: 'boolean', default: false },
    json: { type: 'string' },
    out: { type: 'string' },
    dist: { type: 'string', default: join(root, 'dist') },
  },
})
const load = file => import(pathToFileURL(join(resolve(options.dist), 'worker/tiny', file)).href)
const [{ createTiny }, { loadTinyModel }, { createTinyKernel }, { layOutWeights }] = await Promise.all(
  ['tiny.js', 'model-folder.js', 'kernel.js', 'weights.js'].map(load),
)
const folder = join(root, 'models/tiny6')
const model = await loadTinyModel(folder)
const BATCHES = [1, 8, 32]
const PROMPT = 96
const [STEPS, WARM_UP] = options.quick ? [12, 6] : [64, 16]
const BLOCKS_EACH = Math.ceil((PROMPT + STEPS + WARM_UP + 2) / 16)

/** Prompts of all domains: consecutive windows of the reference prompts. */
const { prompts } = JSON.parse(readFileSync(join(folder, 'reference.json'), 'utf8'))
const allIds = prompts.flatMap(({ prompt_token_ids: prompt, greedy_token_ids: greedy }) => [
  ...prompt,
  ...greedy,
])
const promptOf = n => Array.from({ length: PROMPT }, (_, i) => allIds[(n * 53 + i) % allIds.length])

/** Milliseconds. */
const now = options.cpu
  ? () => {
      const { user, system } = process.cpuUsage()
      return (user + system) / 1e3
    }
  : () => performance.now()

/**
 * Prefills the prompts and runs decode steps: median milliseconds, the text, and experts active in a step
 * (mean).
 */
async function decode(promptList, kernel, steps = STEPS) {
  const backEnd = createTiny({ model, pace: 'real', kernel })
  backEnd.allocate(promptList.length * BLOCKS_EACH, 16)
  const items = await Promise.all(
    promptList.map(async (prompt, n) => {
      const request = {
        promptIds: Int32Array.from(prompt),
        maxTokens: 128,
        minTokens: 0,
        temperature: 0,
        topK: 0,
        topP: 1,
        seed: 0,
      }
      const ids = new Int32Array(BLOCKS_EACH * 16)
      ids.set(prompt)
      const blocks = Int32Array.from({ length: BLOCKS_EACH }, (_, b) => n * BLOCKS_EACH + b)
      return { sequence: await backEnd.prepare(request), request, ids, blocks, record: undefined }
    }),
  )
  const made = promptList.map(() => [])
  const [stepMs, active] = [[], []]
  let wallMs = 0
  for (let step = -1; step < WARM_UP + steps; step++) {
    const [from, length] = step < 0 ? [0, PROMPT] : [PROMPT + step, PROMPT + step + 1]
    const given = items.map(item => ({ ...item, from, to: length, length, decode: step >= 0 }))
    if (step === WARM_UP) kernel.reset?.()
    const [begin, beganMs] = [now(), performance.now()]
    const result = backEnd.step(given, undefined)
    if (step >= WARM_UP) {
      stepMs.push(now() - begin)
      wallMs += performance.now() - beganMs
      active.push(result.active)
    }
    result.next.forEach((id, i) => {
      items[i].ids[length] = id
      made[i].push(id)
    })
  }
  await backEnd.close()
  return {
    msPerStep: median(stepMs),
    wallMs,
    ids: made,
    active: active.reduce((a, b) => a + b) / active.length,
  }
}

/** A kernel that adds up the time of its parts. */
function timedKernel() {
  const { layers, head } = layOutWeights(model.config)
  const names = new Map([[head, 'head']])
  for (const layer of layers) {
    for (const name of ['qkv', 'output']) names.set(layer[name], 'projections of attention')
    names.set(layer.gate, 'gate')
  }
  const PARTS = {
    attend: 'attention over the context',
    gatedUnit: 'experts',
    gather: 'experts',
    addScaled: 'experts',
    softmax: 'gate',
  }
  const parts = new Map()
  const create = bytes => {
    const kernel = createTinyKernel(bytes)
    const timed =
      name =>
      (...given) => {
        const begin = performance.now()
        kernel[name](...given)
        const part =
          name === 'matmul' ? (names.get(given[3]) ?? 'experts') : (PARTS[name] ?? 'norms, positions, sums')
        parts.set(part, (parts.get(part) ?? 0) + performance.now() - begin)
      }
    const loops = Object.keys(kernel).filter(name => name !== 'buffer')
    return { buffer: kernel.buffer, ...Object.fromEntries(loops.map(name => [name, timed(name)])) }
  }
  create.reset = () => parts.clear()
  create.parts = parts
  return create
}

function torch(batches) {
  const interpreter = process.env.ELDR_BENCH_TORCH_PYTHON
  if (!interpreter) return Promise.resolve(undefined)
  return new Promise((done, fail) => {
    const child = spawn(interpreter, [join(root, 'bench/python/tiny_torch.py'), folder], {
      env: { ...process.env, OMP_NUM_THREADS: '1', MKL_NUM_THREADS: '1' },
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    let text = ''
    child.stdout.on('data', chunk => (text += chunk))
    child.on('error', fail)
    child.on('close', code =>
      code === 0 ? done(JSON.parse(text)) : fail(new Error(`PyTorch ended with ${code}`)),
    )
    child.stdin.end(
      JSON.stringify({ batches, steps: STEPS, warmUp: WARM_UP, transformers: true, cpu: options.cpu }),
    )
  })
}

const about = header(0)
console.log(about)
const batches = BATCHES.map(batch => Array.from({ length: batch }, (_, n) => promptOf(n)))
const simd = []
const plain = []
for (const batch of batches) {
  simd.push(await decode(batch, bytes => createTinyKernel(bytes, 'simd')))
  plain.push(await decode(batch, bytes => createTinyKernel(bytes, 'plain'), Math.min(STEPS, 16)))
}
const other = await torch(batches)
for (const [b, own] of simd.entries()) {
  for (const [name, theirs] of Object.entries({
    plain: plain[b],
    lean: other?.lean[b],
    eager: other?.eager?.[b],
  })) {
    if (theirs === undefined) continue
    const differ = theirs.ids.filter((ids, i) => ids.some((id, t) => own.ids[i][t] !== id)).length
    if (differ > 0 && name === 'plain') throw new Error('the plain loops write another text than the kernel')
    if (differ > 0)
      console.log(
        `batch ${BATCHES[b]}: ${differ} texts of ${name} part from the kernel’s somewhere: nearly equal logits`,
      )
  }
}

const perSecond = (batch, result) =>
  result === undefined ? '–' : ((1e3 * batch) / result.msPerStep).toFixed(0)
const speed = table(
  [
    'batch',
    'step',
    'kernel, tokens/s',
    'plain JS',
    'PyTorch, lean',
    'PyTorch, transformers',
    'kernel against lean',
  ],
  BATCHES.map((batch, b) => [
    batch,
    ms(simd[b].msPerStep),
    ...[simd[b], plain[b], other?.lean[b], other?.eager?.[b]].map(result => perSecond(batch, result)),
    times(other?.lean[b].msPerStep, simd[b].msPerStep),
  ]),
)
console.log(`\n${speed.text}`)

const shares = []
for (const batch of batches) {
  const kernel = timedKernel()
  const { wallMs } = await decode(batch, kernel)
  const inKernel = [...kernel.parts.values()].reduce((a, b) => a + b)
  shares.push(new Map([...kernel.parts, ['the rest: top-k, lists, sampling, calls', wallMs - inKernel]]))
}
const names = [...shares[0].keys()]
const sumOf = map => [...map.values()].reduce((a, b) => a + b)
const where = table(
  ['part', ...BATCHES.map(batch => `batch ${batch}`)],
  names.map(name => [
    name,
    ...shares.map(map => `${((100 * (map.get(name) ?? 0)) / sumOf(map)).toFixed(0)} %`),
  ]),
)
console.log(`\n${where.text}`)

/** Batches with fewer distinct prompts: the same arithmetic with fewer experts. */
const FIXED = 16
const byExperts = []
for (const distinct of [1, 2, 4, 8, 16]) {
  const list = Array.from({ length: FIXED }, (_, n) => promptOf(n % distinct))
  const runs = []
  for (let run = 0; run < (options.quick ? 1 : 3); run++)
    runs.push(await decode(list, bytes => createTinyKernel(bytes, 'simd')))
  byExperts.push({
    distinct,
    active: runs[0].active,
    msPerStep: median(runs.map(({ msPerStep }) => msPerStep)),
  })
}
const slope = slopeOf(byExperts.map(({ active, msPerStep }) => [active, msPerStep]))
const experts = table(
  ['distinct sequences of 16', 'active experts per layer', 'step', 'against the first'],
  byExperts.map(({ distinct, active, msPerStep }) => [
    distinct,
    active.toFixed(1),
    ms(msPerStep),
    times(msPerStep, byExperts[0].msPerStep),
  ]),
)
console.log(`\n${experts.text}\n`)
const perExpert = `Each distinct expert costs ${((1e3 * slope) / model.config.layers).toFixed(1)} µs in a layer; one more in every layer adds ${((100 * slope) / byExperts.at(-1).msPerStep).toFixed(1)} % to the last row’s step.`
console.log(perExpert)

function slopeOf(points) {
  const mean = i => points.reduce((sum, point) => sum + point[i], 0) / points.length
  const [x, y] = [mean(0), mean(1)]
  return (
    points.reduce((sum, [a, b]) => sum + (a - x) * (b - y), 0) /
    points.reduce((sum, [a]) => sum + (a - x) ** 2, 0)
  )
}

if (options.json) {
  const strip = ({ msPerStep, active }) => ({ msPerStep, active })
  const raw = {
    about,
    batches: BATCHES,
    simd: simd.map(strip),
    plain: plain.map(strip),
    torch: other && { version: other.torch, lean: other.lean.map(strip), eager: other.eager?.map(strip) },
    shares: shares.map(map => Object.fromEntries(map)),
    byExperts,
    slopeMs: slope,
  }
  writeFileSync(options.json, `${JSON.stringify(raw, undefined, 2)}\n`)
}
if (options.out) {
  const page = [
    '# Benchmarks of the tiny back end',
    '',
    'Written by `node bench/tiny.mjs --out`.',
    '',
    `${about}. Decode of models/tiny6 in float32 on one thread, ${PROMPT} tokens of prompt each, median of ${STEPS} steps.${other ? ` PyTorch ${other.torch}: lean is bench/python/tiny_torch.py, written for speed; transformers is the unmodified model, eager.` : ''}`,
    '',
    speed.markdown,
    '',
    '## Time by part',
    '',
    where.markdown,
    '',
    '## Step time by active experts',
    '',
    `A batch of ${FIXED} sequences, of which some are copies: the arithmetic is the same, but copies read no further expert weights.`,
    '',
    experts.markdown,
    '',
    perExpert,
    '',
  ]
  writeFileSync(options.out, page.join('\n'))
}
