// Traffic from calibration traces, so that constants can be chosen without evaluation traces: half of a trace
// is for the fit, the other half is the traffic. A calibration trace has the number of activations of each
// expert but not their steps, so steps are drawn: top_k experts per layer without replacement, with weights
// that are adjusted until each expert is active as often as recorded.
import { createRandom } from '../../dist/math/random.js'
import { writeSafetensors } from '../../dist/trace/safetensors-write.js'
import { openTrace } from '../../dist/trace/trace.js'

/** Writes the half for the fit to `path`. @returns it, and the other half with its drawn steps. */
export async function heldOut(calibration, path, steps) {
  const trace = await openTrace(calibration)
  const { layers, experts, topK, requests } = trace
  const shape = { layers, experts, topK, steps }
  const cells = layers * experts
  const [prefill, decode, decoded, prompts] = [
    await trace.prefillCounts(),
    await trace.decodeCounts(),
    await trace.decodeSteps(),
    await trace.promptTokens(),
  ]
  const random = createRandom(5)
  const order = Array.from({ length: requests }, (_, r) => r)
  for (let i = requests - 1; i > 0; i--)
    [order[i], order[random.below(i + 1)]] = [order[random.below(i + 1)], order[i]]
  const [known, held] = [order.slice(0, requests / 2), order.slice(requests / 2)]
  const rowsOf = (values, rows) =>
    Uint16Array.from(rows.flatMap(r => Array.from(values.subarray(r * cells, (r + 1) * cells))))
  const metadata = {
    format: 'eldr.trace.v1',
    model: trace.model,
    layers: `${layers}`,
    experts: `${experts}`,
    top_k: `${topK}`,
  }
  const counts = (values, rows) => ({
    dtype: 'U16',
    shape: [rows.length, layers, experts],
    data: rowsOf(values, rows),
  })
  await writeSafetensors(path, {
    metadata,
    tensors: {
      prefill_counts: counts(prefill, known),
      decode_counts: counts(decode, known),
      decode_steps: { dtype: 'U16', shape: [known.length], data: Uint16Array.from(known, r => decoded[r]) },
    },
  })
  await trace.close()
  const perRequest = steps * layers * topK
  const ids = new Uint8Array(held.length * perRequest)
  held.forEach((r, at) =>
    drawSteps(
      decode.subarray(r * cells, (r + 1) * cells),
      decoded[r],
      shape,
      random,
      ids.subarray(at * perRequest),
    ),
  )
  return {
    shape,
    ids,
    held: held.length,
    countsOf: at => prefill.subarray(held[at] * cells, (held[at] + 1) * cells),
    /** Writes the traffic as an evaluation trace. */
    write: file =>
      writeSafetensors(file, {
        metadata,
        tensors: {
          prefill_counts: counts(prefill, held),
          prompt_tokens: {
            dtype: 'U16',
            shape: [held.length],
            data: Uint16Array.from(held, r => prompts[r]),
          },
          decode_steps: {
            dtype: 'U16',
            shape: [held.length],
            data: new Uint16Array(held.length).fill(steps),
          },
          decode_expert_ids: { dtype: 'U8', shape: [held.length, steps, layers, topK], data: ids },
        },
      }),
  }
}

/** Steps of one request: Gumbel draws with weights, adjusted a few times towards the recorded shares. */
function drawSteps(counts, of, { layers, experts, topK, steps: last }, random, out) {
  const shares = Float64Array.from(counts, count => count / of)
  const weights = shares.map(p =>
    Math.log(Math.min(0.995, Math.max(5e-4, p)) / (1 - Math.min(0.995, Math.max(5e-4, p)))),
  )
  for (let round = 0; round < 5; round++) {
    const drawn = new Float64Array(counts.length)
    const steps = round === 4 ? last : 32
    for (let step = 0; step < steps; step++) {
      for (let layer = 0; layer < layers; layer++) {
        const chosen = highest(weights, layer * experts, experts, topK, random)
        chosen.forEach((expert, k) => {
          drawn[layer * experts + expert] += 1 / steps
          if (round === 4) out[(step * layers + layer) * topK + k] = expert
        })
      }
    }
    const odds = p => Math.log((p + 0.01) / (1 - p + 0.01))
    for (let c = 0; c < weights.length; c++) weights[c] += 0.8 * (odds(shares[c]) - odds(drawn[c]))
  }
}

function highest(weights, from, experts, topK, random) {
  const keys = Array.from({ length: experts }, (_, e) => [
    weights[from + e] - Math.log(-Math.log(random.uniform() || 1e-12)),
    e,
  ])
  return keys
    .sort((a, b) => b[0] - a[0])
    .slice(0, topK)
    .map(([, expert]) => expert)
    .sort((a, b) => a - b)
}
