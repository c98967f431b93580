/**
 * Models for tests of the tiny back end: the bundled one, loaded once, and small ones with random weights.
 */
import { cpSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { createRandom } from '../src/math/random.ts'
import { type TensorToWrite, writeSafetensors } from '../src/trace/safetensors-write.ts'
import { createEngine } from '../src/worker/engine/engine.ts'
import { createTinyKernel, type TinyKernelKind } from '../src/worker/tiny/kernel.ts'
import { loadTinyModel, type TinyModel } from '../src/worker/tiny/model-folder.ts'
import { createTiny } from '../src/worker/tiny/tiny.ts'
import type { EngineSettings, WorkerEngine } from '../src/worker/types.ts'
import { jumpingClock, SETTINGS } from './worker-support.ts'

export const TINY6 = fileURLToPath(new URL('../models/tiny6', import.meta.url))

let shipped: Promise<TinyModel> | undefined
export function tiny6(): Promise<TinyModel> {
  return (shipped ??= loadTinyModel(TINY6))
}

export function engineOf(
  model: TinyModel,
  settings: Partial<EngineSettings> = {},
  kind?: TinyKernelKind,
): WorkerEngine {
  const backEnd = createTiny({
    model,
    pace: 'real',
    kernel: kind && (bytes => createTinyKernel(bytes, kind)),
  })
  return createEngine(backEnd, { ...SETTINGS, ...settings }, jumpingClock())
}

/** Uses tiny6’s tokenizer and vocabulary; everything else is small. */
export const SMALL_CONFIG = {
  architectures: ['Qwen3MoeForCausalLM'],
  vocab_size: 8_192,
  hidden_size: 32,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 16,
  moe_intermediate_size: 16,
  num_experts: 32,
  num_experts_per_tok: 4,
  norm_topk_prob: true,
  hidden_act: 'silu',
  rms_norm_eps: 1e-6,
  rope_theta: 10_000,
  max_position_embeddings: 512,
  tie_word_embeddings: true,
}

export type SmallConfig = typeof SMALL_CONFIG

/** Tensors of a model of that shape, in the order of their names. */
export function smallTensors(config: SmallConfig = SMALL_CONFIG, seed = 1): Record<string, TensorToWrite> {
  const random = createRandom(seed)
  const tensors: Record<string, TensorToWrite> = {}
  /** Rows of about unit length keep activations from vanishing or growing. */
  const add = (name: string, ...shape: number[]) => {
    const size = shape.reduce((a, b) => a * b)
    const spread = shape.length === 1 ? 1 : 3.4 / Math.sqrt(shape[1]!)
    const data = Uint16Array.from({ length: size }, () =>
      bfloat16((shape.length === 1 ? 1 : 0) + spread * (random.uniform() - 0.5)),
    )
    tensors[`model.${name}.weight`] = { dtype: 'BF16', shape, data }
  }
  const {
    hidden_size: hidden,
    num_attention_heads: heads,
    num_key_value_heads: kvHeads,
    head_dim: width,
    moe_intermediate_size: inner,
  } = config
  add('embed_tokens', config.vocab_size, hidden)
  add('norm', hidden)
  for (let l = 0; l < config.num_hidden_layers; l++) {
    const of = `layers.${l}`
    add(`${of}.input_layernorm`, hidden)
    add(`${of}.post_attention_layernorm`, hidden)
    add(`${of}.self_attn.q_proj`, heads * width, hidden)
    add(`${of}.self_attn.k_proj`, kvHeads * width, hidden)
    add(`${of}.self_attn.v_proj`, kvHeads * width, hidden)
    add(`${of}.self_attn.o_proj`, hidden, heads * width)
    add(`${of}.self_attn.q_norm`, width)
    add(`${of}.self_attn.k_norm`, width)
    add(`${of}.mlp.gate`, config.num_experts, hidden)
    for (let e = 0; e < config.num_experts; e++) {
      add(`${of}.mlp.experts.${e}.gate_proj`, inner, hidden)
      add(`${of}.mlp.experts.${e}.up_proj`, inner, hidden)
      add(`${of}.mlp.experts.${e}.down_proj`, hidden, inner)
    }
  }
  return tensors
}

export async function writeSmallModel(
  folder: string,
  tensors = smallTensors(),
  config: Record<string, unknown> = SMALL_CONFIG,
): Promise<string> {
  mkdirSync(folder, { recursive: true })
  for (const name of ['tokenizer.json', 'tokenizer_config.json', 'generation_config.json'])
    cpSync(join(TINY6, name), join(folder, name))
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config))
  await writeSafetensors(join(folder, 'model.safetensors'), { tensors })
  return folder
}

/** Rounded towards zero. */
function bfloat16(value: number): number {
  return new Uint32Array(Float32Array.of(value).buffer)[0]! >>> 16
}
