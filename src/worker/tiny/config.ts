/** What config.json and generation_config.json of a model folder say, checked: a model that this engine would compute wrongly is refused. */
import * as z from 'zod'
import { EldrError } from '../../errors.ts'
import type { ModelShape } from '../types.ts'
import { PANEL } from './kernel.ts'

export interface TinyConfig extends ModelShape {
  readonly hidden: number
  readonly heads: number
  readonly kvHeads: number
  readonly headWidth: number
  /** Of an expert. */
  readonly expertWidth: number
  readonly vocabulary: number
  readonly positions: number
  readonly eps: number
  readonly ropeTheta: number
  /** Whether the weights of the chosen experts are made to sum to 1. */
  readonly renormalise: boolean
  readonly tiedHead: boolean
}

const size = z
  .int()
  .min(1)
  .max(2 ** 24)
const schema = z.object({
  architectures: z.tuple([z.literal('Qwen3MoeForCausalLM')]),
  vocab_size: size.multipleOf(PANEL),
  hidden_size: size.multipleOf(PANEL),
  num_hidden_layers: size.max(1_024),
  num_attention_heads: size.max(1_024),
  num_key_value_heads: size.max(1_024),
  head_dim: size.multipleOf(16),
  moe_intermediate_size: size.multipleOf(PANEL / 2),
  num_experts: size.max(65_535).multipleOf(PANEL),
  num_experts_per_tok: size,
  norm_topk_prob: z.boolean(),
  hidden_act: z.literal('silu'),
  rms_norm_eps: z.number().positive(),
  rope_theta: z.number().min(1),
  max_position_embeddings: size,
  tie_word_embeddings: z.boolean().default(false),
  // What changes the computation and is not done here must be absent, or as if it were.
  decoder_sparse_step: z.literal(1).default(1),
  mlp_only_layers: z.array(z.int()).length(0).default([]),
  attention_bias: z.literal(false).default(false),
  use_sliding_window: z.literal(false).default(false),
  rope_scaling: z.null().default(null),
  quantization_config: z.undefined().optional(),
})

const generationSchema = z.object({
  eos_token_id: z.union([z.int().min(0), z.array(z.int().min(0)).min(1)]),
  temperature: z.number().min(0).default(1),
  top_k: z.int().min(-1).default(0),
  top_p: z.number().positive().max(1).default(1),
})

export interface GenerationConfig {
  /** Token ids that end a text; the first is the tokenizer's own. */
  readonly endIds: readonly number[]
  /** Where a request says nothing. */
  readonly sampling: { readonly temperature: number; readonly topK: number; readonly topP: number }
}

export function parseConfig(file: string, json: unknown): TinyConfig {
  const raw = checked(file, schema, json)
  const { num_attention_heads: heads, num_key_value_heads: kvHeads, head_dim: headWidth, num_experts: experts } = raw
  const problems = [
    (heads % kvHeads !== 0 || (heads / kvHeads) % 2 !== 0) && `${heads} query heads on ${kvHeads} key/value heads: an even number for each`,
    ((heads + 2 * kvHeads) * headWidth) % PANEL !== 0 && `heads of ${headWidth}: queries, keys and values together a multiple of ${PANEL}`,
    raw.num_experts_per_tok > experts && `num_experts_per_tok ${raw.num_experts_per_tok}: at most num_experts, ${experts}`,
  ].filter(problem => problem !== false)
  if (problems.length > 0) throw badModel(file, problems)
  return {
    layers: raw.num_hidden_layers,
    experts,
    topK: raw.num_experts_per_tok,
    hidden: raw.hidden_size,
    heads,
    kvHeads,
    headWidth,
    expertWidth: raw.moe_intermediate_size,
    vocabulary: raw.vocab_size,
    positions: raw.max_position_embeddings,
    eps: raw.rms_norm_eps,
    ropeTheta: raw.rope_theta,
    renormalise: raw.norm_topk_prob,
    tiedHead: raw.tie_word_embeddings,
  }
}

export function parseGeneration(file: string, json: unknown, vocabulary: number): GenerationConfig {
  const { eos_token_id: given, temperature, top_k: topK, top_p: topP } = checked(file, generationSchema, json)
  const endIds = typeof given === 'number' ? [given] : given
  const outside = endIds.find(id => id >= vocabulary)
  if (outside !== undefined) throw badModel(file, [`eos_token_id ${outside}: below ${vocabulary}, the size of the vocabulary`])
  return { endIds, sampling: { temperature, topK: Math.max(0, topK), topP } }
}

export function checked<T>(file: string, schema: z.ZodType<T>, json: unknown): T {
  const result = schema.safeParse(json)
  if (result.success) return result.data
  throw badModel(file, result.error.issues.map(({ path, message }) => `${path.join('.') || 'the file'}: ${message}`)) // prettier-ignore
}

export function badModel(file: string, problems: readonly string[], cause?: unknown): EldrError {
  const more = problems.length > 1 ? ` and ${problems.length - 1} more` : ''
  return new EldrError('ELDR_MODEL_UNFIT', { file, found: `${problems[0]}${more}`, problems, cause })
}
