/** Traces of a synthetic model: requests of several domains, each with preferred experts. */
import { writeFile } from 'node:fs/promises'
import { createRandom } from '../src/math/random.ts'
import { bytesOf } from './trace-support.ts'

export interface SyntheticModel {
  readonly layers: number
  readonly experts: number
  readonly topK: number
  readonly domains: number
  /** How much likelier an expert of the own domain is than another; 1 is no structure. */
  readonly preference: number
}

const STEPS = 24
const PROMPT = 32

export async function writeSyntheticTrace(
  file: string,
  model: SyntheticModel,
  requests: number,
  seed: number,
): Promise<void> {
  const { layers, experts, topK, domains, preference } = model
  const random = createRandom(seed)
  const counts = new Uint16Array(requests * layers * experts)
  const ids = new Uint8Array(requests * STEPS * layers * topK)
  const domain = Uint8Array.from({ length: requests }, (_, request) => request % domains)
  /**
   * Puts the experts of one token in one layer into `chosen`: the smallest of exponential times with the
   * preference as their rate.
   */
  const chosen: number[] = []
  const choose = (own: number) => {
    const times = Array.from(
      { length: experts },
      (_, e) => -Math.log(1 - random.uniform()) / (e % domains === own ? preference : 1),
    )
    chosen.splice(
      0,
      Infinity,
      ...times
        .map((_, e) => e)
        .sort((a, b) => times[a]! - times[b]!)
        .slice(0, topK),
    )
  }
  for (let request = 0, at = 0; request < requests; request++) {
    for (let token = 0; token < PROMPT; token++) {
      for (let layer = 0; layer < layers; layer++) {
        choose(domain[request]!)
        for (const e of chosen) counts[(request * layers + layer) * experts + e]!++
      }
    }
    for (let cell = 0; cell < STEPS * layers; cell++) {
      choose(domain[request]!)
      for (const e of chosen) ids[at++] = e
    }
  }
  const bytes = await bytesOf({
    metadata: {
      format: 'eldr.trace.v1',
      model: 'synthetic',
      layers: `${layers}`,
      experts: `${experts}`,
      top_k: `${topK}`,
      domains: Array.from({ length: domains }, (_, d) => `d${d}`).join(','),
    },
    tensors: {
      prefill_counts: { dtype: 'U16', shape: [requests, layers, experts], data: counts },
      prompt_tokens: { dtype: 'U16', shape: [requests], data: new Uint16Array(requests).fill(PROMPT) },
      domain: { dtype: 'U8', shape: [requests], data: domain },
      decode_steps: { dtype: 'U16', shape: [requests], data: new Uint16Array(requests).fill(STEPS) },
      decode_expert_ids: { dtype: 'U8', shape: [requests, STEPS, layers, topK], data: ids },
    },
  })
  await writeFile(file, bytes)
}
