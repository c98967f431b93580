// Cuts the shipped traces under data/ from the full ones: node scripts/cut-data.mjs FOLDER_OF_FULL_TRACES. To
// keep the repository small, lab16 has 500 calibration requests, gate scores for 160 of them, decode counts
// in one byte (the few requests in which an expert was active in all 256 steps are skipped), and 400
// evaluation requests of 48 steps. tiny6-long has all requests, with 64 steps in its evaluation; gate scores
// and decode counts of its calibration are cut in the same way.
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { openSafetensors } from '../dist/trace/safetensors-file.js'
import { writeSafetensors } from '../dist/trace/safetensors-write.js'

const [from] = process.argv.slice(2)
if (from === undefined) throw new Error('usage: node scripts/cut-data.mjs FOLDER_OF_FULL_TRACES')
const to = join(dirname(fileURLToPath(import.meta.url)), '..', 'data')
const [CALIBRATION, GATE_ROWS, EVALUATION, LAB_STEPS, LONG_STEPS] = [500, 160, 400, 48, 64]

for (const workload of ['task', 'lang']) {
  await cut(`lab16-${workload}.calibration.safetensors`, calibrationOf)
  await cut(`lab16-${workload}.evaluation.safetensors`, file => evaluationOf(file, LAB_STEPS))
  await cut(`tiny6-long-${workload}.calibration.safetensors`, file => calibrationOf(file, Infinity))
  await cut(`tiny6-long-${workload}.evaluation.safetensors`, file => evaluationOf(file, LONG_STEPS))
}

async function cut(name, tensorsOf) {
  const file = await openSafetensors(join(from, name))
  await writeSafetensors(join(to, name), {
    metadata: { ...file.metadata, cut_from_sha256: await file.sha256() },
    tensors: await tensorsOf(file),
  })
  await file.close()
}

async function calibrationOf(file, most = CALIBRATION) {
  const { shape } = file.info('decode_counts')
  const cells = shape[1] * shape[2]
  const decode = await file.read('decode_counts')
  const rows = Array.from({ length: shape[0] }, (_, r) => r)
    .filter(r => decode.subarray(r * cells, (r + 1) * cells).every(count => count <= 255))
    .slice(0, most)
  return {
    prefill_counts: await picked(file, 'prefill_counts', rows),
    decode_counts: { ...(await picked(file, 'decode_counts', rows, Uint8Array)), dtype: 'U8' },
    decode_steps: await picked(file, 'decode_steps', rows),
    prompt_tokens: await picked(file, 'prompt_tokens', rows),
    domain: await picked(file, 'domain', rows),
    ...(file.tensors.has('prefill_recent') && { prefill_recent: await picked(file, 'prefill_recent', rows) }),
    gate_prob_sum: await picked(file, 'gate_prob_sum', rows.slice(0, GATE_ROWS)),
    gate_logit_mean: await picked(file, 'gate_logit_mean', rows.slice(0, GATE_ROWS)),
  }
}

async function evaluationOf(file, steps) {
  const rows = Array.from({ length: EVALUATION }, (_, r) => r)
  const { dtype, shape } = file.info('decode_expert_ids')
  const ids = await file.read('decode_expert_ids')
  const stepSize = shape[2] * shape[3]
  const cutIds = new Uint8Array(EVALUATION * steps * stepSize)
  for (const r of rows)
    cutIds.set(ids.subarray(r * shape[1] * stepSize, (r * shape[1] + steps) * stepSize), r * steps * stepSize)
  return {
    prefill_counts: await picked(file, 'prefill_counts', rows),
    decode_expert_ids: { dtype, shape: [EVALUATION, steps, shape[2], shape[3]], data: cutIds },
    decode_steps: { dtype: 'U16', shape: [EVALUATION], data: new Uint16Array(EVALUATION).fill(steps) },
    prompt_tokens: await picked(file, 'prompt_tokens', rows),
    domain: await picked(file, 'domain', rows),
    ...(file.tensors.has('prefill_recent') && { prefill_recent: await picked(file, 'prefill_recent', rows) }),
  }
}

/** Selected rows of a tensor, optionally converted to another array type. */
async function picked(file, name, rows, As) {
  const { dtype, shape } = file.info(name)
  const values = await file.read(name)
  const length = shape.slice(1).reduce((a, b) => a * b, 1)
  const data = new (As ?? values.constructor)(rows.length * length)
  rows.forEach((r, at) => data.set(values.subarray(r * length, (r + 1) * length), at * length))
  return { dtype, shape: [rows.length, ...shape.slice(1)], data }
}
