// Synthetic traces of any shape that resemble the lab16 traces in what a fit uses: generalist experts with a
// Zipf-like share, domains and topics that prefer other experts, strongly in some layers and hardly in
// others, requests that deviate from their topic, and decode choices that follow those of prefill. Every
// layer's counts sum to top_k × tokens and none exceeds tokens, as in a real trace.
import { createSafetensors, half } from './safetensors.mjs'
import { mulberry } from './prng.mjs'

const TOPICS = 6 // in a domain
// Draws of a normal distribution, walked from a random start with a random odd stride: far cheaper than
// drawing.
const TABLE = 1 << 16

/**
 * Writes a calibration trace to `file`. @example writeTrace('trace.safetensors', { requests: 1000, layers:
 * 48, experts: 128, topK: 8, domains: 4, seed: 1 })
 */
export function writeTrace(
  file,
  { requests, layers, experts, topK = 8, domains = 4, seed = 1, steps = 256, gates = false },
) {
  const random = mulberry(seed)
  const normal = normalTable(random)
  const prefer = preferences({ layers, experts, domains, random, normal })
  const cells = layers * experts
  const wide = { dtype: 'U16', shape: [requests, layers, experts] }
  const score = { dtype: 'F16', shape: wide.shape }
  const tensors = {
    prefill_counts: wide,
    decode_counts: wide,
    ...(gates ? { gate_prob_sum: score, gate_logit_mean: score } : {}),
    decode_steps: { dtype: 'U16', shape: [requests] },
    prompt_tokens: { dtype: 'U16', shape: [requests] },
    domain: { dtype: 'U8', shape: [requests] },
  }
  const names = Array.from({ length: domains }, (_, d) => `domain${d}`)
  const metadata = {
    format: 'eldr.trace.v1',
    model: 'synthetic',
    layers,
    experts,
    top_k: topK,
    domains: names,
    workload: 'synthetic',
    split: 'calibration',
  }
  const out = createSafetensors(
    file,
    tensors,
    Object.fromEntries(Object.entries(metadata).map(([key, value]) => [key, String(value)])),
  )

  const tokens = new Uint16Array(requests)
  const domain = new Uint8Array(requests)
  const [prefill, decode, probability, logit] = Array.from({ length: 4 }, () => new Uint16Array(cells))
  const weight = new Float64Array(experts)
  const later = new Float64Array(experts)
  const sample = sampler({ experts, topK, random, normal })

  for (let i = 0; i < requests; i++) {
    domain[i] = pickDomain(domains, random())
    tokens[i] = Math.round(32 * 14 ** random()) // 32 … 448, log-uniform
    const topic = domain[i] * TOPICS + Math.floor(random() * TOPICS)
    const second = domain[i] * TOPICS + Math.floor(random() * TOPICS)
    // Responses deviate from the prompt's topic as a whole, not only cell by cell.
    const third = Math.floor(random() * domains * TOPICS)
    const mix = random() * 0.5
    const stray = random() * 0.6
    for (let l = 0; l < layers; l++) {
      const a = (topic * layers + l) * experts
      const b = (second * layers + l) * experts
      const c = (third * layers + l) * experts
      const [own, drift] = [walk(random), walk(random)]
      const spread = prefer.deviation[l]
      for (let e = 0; e < experts; e++) {
        const asked = (1 - mix) * prefer.weight[a + e] + mix * prefer.weight[b + e]
        const answered = (1 - stray) * asked + stray * prefer.weight[c + e]
        const self = Math.exp(spread * normal[own(e)])
        weight[e] = asked * self
        later[e] = answered * self * Math.exp(prefer.drift[l] * normal[drift(e)])
      }
      if (gates) scores(weight, tokens[i], probability, logit, l * experts)
      sample(weight, tokens[i], prefill, l * experts)
      sample(later, steps, decode, l * experts)
    }
    out.put('prefill_counts', i * cells, prefill)
    out.put('decode_counts', i * cells, decode)
    if (gates) {
      out.put('gate_prob_sum', i * cells, probability)
      out.put('gate_logit_mean', i * cells, logit)
    }
  }
  out.put('decode_steps', 0, new Uint16Array(requests).fill(steps))
  out.put('prompt_tokens', 0, tokens)
  out.put('domain', 0, domain)
  out.close()
}

function normalTable(random) {
  const table = new Float64Array(TABLE)
  for (let i = 0; i < TABLE; i++)
    table[i] = Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random())
  return table
}

/** Index into the table for each expert of one row. */
function walk(random) {
  const start = Math.floor(random() * TABLE)
  const stride = Math.floor(random() * TABLE) | 1
  return e => (start + Math.imul(e, stride)) & (TABLE - 1)
}

/**
 * weight: [domain · topic × layer × expert]; deviation, drift: how far a request is from its topic, and
 * decode from prefill, by layer.
 */
function preferences({ layers, experts, domains, random, normal }) {
  const topics = domains * TOPICS
  const weight = new Float64Array(topics * layers * experts)
  const deviation = new Float64Array(layers)
  const drift = new Float64Array(layers)
  const draw = () => normal[Math.floor(random() * TABLE)]
  for (let l = 0; l < layers; l++) {
    const informative = random() // of domain and topic
    deviation[l] = 0.75 - 0.3 * informative
    drift[l] = 0.25 + 0.35 * random()
    const rank = shuffled(experts, random)
    for (let e = 0; e < experts; e++) {
      const general = 1 / (rank[e] + 10) ** 1.5
      for (let d = 0; d < domains; d++) {
        const liked = (0.2 + 0.75 * informative) * draw()
        for (let t = 0; t < TOPICS; t++) {
          weight[((d * TOPICS + t) * layers + l) * experts + e] =
            general * Math.exp(liked + (0.15 + 0.35 * informative) * draw())
        }
      }
    }
  }
  return { weight, deviation, drift }
}

function shuffled(n, random) {
  const list = Array.from({ length: n }, (_, i) => i)
  for (let i = n - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1))
    ;[list[i], list[j]] = [list[j], list[i]]
  }
  return list
}

/** Unequal shares, as in real workloads: domain d has weight 1/√(d+1). */
function pickDomain(domains, u) {
  let total = 0
  for (let d = 0; d < domains; d++) total += 1 / Math.sqrt(d + 1)
  let left = u * total
  for (let d = 0; d < domains; d++) if ((left -= 1 / Math.sqrt(d + 1)) < 0) return d
  return domains - 1
}

/**
 * Counts of `tokens` tokens that each take topK distinct experts: about binomial around each expert's
 * probability, then adjusted by ones until the sum is exact. Writes out[at … at + experts).
 */
function sampler({ experts, topK, random, normal }) {
  const chance = new Float64Array(experts)
  return (weight, tokens, out, at) => {
    inclusion(weight, topK, chance)
    const noise = walk(random)
    let missing = topK * tokens
    for (let e = 0; e < experts; e++) {
      const mean = tokens * chance[e]
      const value = Math.floor(mean + Math.sqrt(mean * (1 - chance[e])) * normal[noise(e)] + random())
      const count = value < 0 ? 0 : value > tokens ? tokens : value
      out[at + e] = count
      missing -= count
    }
    // Active experts first, so that the correction does not activate idle ones; then any expert.
    for (let round = 0; missing !== 0; round++) {
      const first = Math.floor(random() * experts)
      for (let n = 0; n < experts && missing !== 0; n++) {
        const e = at + ((first + n) % experts)
        if (missing > 0 && out[e] < tokens && (out[e] > 0 || round > 3)) {
          out[e]++
          missing--
        } else if (missing < 0 && out[e] > 0) {
          out[e]--
          missing++
        }
      }
    }
  }
}

/** Probabilities that sum to topK, each at most 1 and otherwise proportional to the weights. */
function inclusion(weight, topK, chance) {
  const experts = weight.length
  chance.fill(0)
  for (let full = 0; ;) {
    let sum = 0
    for (let e = 0; e < experts; e++) if (chance[e] < 1) sum += weight[e]
    const scale = (topK - full) / sum
    let more = 0
    for (let e = 0; e < experts; e++) {
      if (chance[e] >= 1) continue
      chance[e] = weight[e] * scale
      if (chance[e] < 1) continue
      chance[e] = 1
      more++
    }
    if (more === 0) return
    full += more
  }
}

/** Gate scores: softmax summed over tokens, and raw scores around zero. */
function scores(weight, tokens, probability, logit, at) {
  let sum = 0
  let mean = 0
  for (let e = 0; e < weight.length; e++) {
    sum += weight[e]
    mean += Math.log(weight[e]) / weight.length
  }
  for (let e = 0; e < weight.length; e++) {
    probability[at + e] = half((tokens * weight[e]) / sum)
    logit[at + e] = half(Math.log(weight[e]) - mean)
  }
}
