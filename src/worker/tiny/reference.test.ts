/** The model compared with `transformers`: twelve prompts of models/tiny6/reference.json, in float32. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { TINY6, tiny6 } from '../../../test/tiny-support.ts'
import { Forward } from './forward.ts'
import { createTinyKernel, type TinyKernelKind } from './kernel.ts'
import type { TinyModel } from './model-folder.ts'
import { mostLikely } from './sampling.ts'

interface Reference {
  readonly domain: string
  readonly prompt: string
  readonly prompt_token_ids: readonly number[]
  /** [layer][token][rank], margins [layer][token] */
  readonly last4_expert_ids: readonly (readonly (readonly number[])[])[]
  readonly last4_expert_margin: readonly (readonly number[])[]
  readonly logit_token_ids: readonly number[]
  readonly logits: readonly number[]
  readonly greedy_token_ids: readonly number[]
  readonly greedy_margin: readonly number[]
}
const { prompts } = JSON.parse(readFileSync(join(TINY6, 'reference.json'), 'utf8')) as {
  prompts: Reference[]
}
/** Below these margins of gate probabilities and logits another order of additions may choose differently. */
const EXPERT_MARGIN = 1e-5
const LOGIT_TOLERANCE = 1e-3

let model: TinyModel
beforeAll(async () => {
  model = await tiny6()
})

function check(kind: TinyKernelKind, references: readonly Reference[]) {
  const { layers, topK } = model.config
  const forward = new Forward(model.config, model.weights, 40, 16, bytes => createTinyKernel(bytes, kind))
  // Blocks in shuffled order.
  const blocks = Int32Array.from({ length: 40 }, (_, i) => (i * 7 + 3) % 40)
  const found = { expertsAllowed: 0, expertsWrong: 0, tokensAllowed: 0, tokensWrong: 0, worstLogit: 0 }
  for (const reference of references) {
    const ids = new Int32Array(512)
    ids.set(reference.prompt_token_ids)
    let length = reference.prompt_token_ids.length
    forward.run([{ ids, from: 0, to: length, blocks }])
    for (let l = 0; l < layers; l++) {
      for (let t = 0; t < 4; t++) {
        const at = ((length - 4 + t) * layers + l) * topK
        const own = [...forward.experts.subarray(at, at + topK)].toSorted((a, b) => a - b)
        if (own.join() === [...reference.last4_expert_ids[l]![t]!].toSorted((a, b) => a - b).join()) continue
        found[reference.last4_expert_margin[l]![t]! < EXPERT_MARGIN ? 'expertsAllowed' : 'expertsWrong']++
      }
    }
    let logits = forward.logits([length - 1])[0]!
    reference.logit_token_ids.forEach(
      (id, i) =>
        (found.worstLogit = Math.max(found.worstLogit, Math.abs(logits[id]! - reference.logits[i]!))),
    )
    for (const [step, expected] of reference.greedy_token_ids.entries()) {
      const next = mostLikely(logits)
      if (next !== expected) {
        // From here on the text differs.
        found[reference.greedy_margin[step]! < LOGIT_TOLERANCE ? 'tokensAllowed' : 'tokensWrong']++
        break
      }
      ids[length++] = next
      forward.run([{ ids, from: length - 1, to: length, blocks }])
      logits = forward.logits([0])[0]!
    }
  }
  return found
}

describe('the tiny back end on the reference prompts', () => {
  it('tokenizes them like the reference', () => {
    expect(prompts).toHaveLength(12)
    for (const { prompt, prompt_token_ids: ids } of prompts)
      expect([...model.tokenizer.encode(prompt)]).toEqual(ids)
  })

  it('chooses the same experts and generates the same text, with logits within 0.001', () => {
    const { worstLogit, ...found } = check('simd', prompts)
    console.log(
      `reference: worst logit ${worstLogit.toExponential(1)} off; differences below the margins: ${found.expertsAllowed} sets of experts, ${found.tokensAllowed} texts`,
    )
    expect(found).toMatchObject({ expertsWrong: 0, tokensWrong: 0 })
    expect(worstLogit).toBeLessThan(LOGIT_TOLERANCE)
  })

  it('does so in plain JavaScript too', () => {
    const { worstLogit, ...found } = check('plain', prompts.slice(0, 2))
    expect(found).toMatchObject({ expertsWrong: 0, tokensWrong: 0 })
    expect(worstLogit).toBeLessThan(LOGIT_TOLERANCE)
  })
})
