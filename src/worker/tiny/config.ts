/**
 * Reads and validates config.json and generation_config.json of a model folder. A model that this engine
 * would compute incorrectly is refused.
 */
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
  /** Normalize the weights of the chosen experts to sum to 1. */
  readonly renormalise: boolean
  readonly tiedHead: boolean
}

const size = z
  .int()
  .min(1)
  .max(2 ** 24)
/** Beyond this, angles of late positions are no longer exact (turns.ts). */
const MAX_POSITIONS = 2 ** 20
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
  rope_theta: z.number().min(1).nullish(),
  // Newer releases of transformers write it here, with or without rope_theta beside it.
  rope_parameters: z
    .strictObject({
      rope_type: z.literal('default').default('default'),
      rope_theta: z.number().min(1),
      partial_rotary_factor: z.literal(1).nullish(),
    })
    .nullish(),
  partial_rotary_factor: z.literal(1).nullish(),
  max_position_embeddings: size.max(MAX_POSITIONS),
  tie_word_embeddings: z.boolean().default(false),
  // Fields that change the computation in an unsupported way must be absent or neutral.
  decoder_sparse_step: z.literal(1).default(1),
  mlp_only_layers: z.array(z.int()).length(0).default([]),
  attention_bias: z.literal(false).default(false),
  use_sliding_window: z.literal(false).default(false),
  rope_scaling: z.null().default(null),
  quantization_config: z.undefined().optional(),
})

/** Rope parameters that are read above; others would change the rotation in an unsupported way. */
const KNOWN_ROPE: ReadonlySet<string> = new Set(['rope_theta', 'rope_scaling', 'rope_parameters'])

const or = <T>(schema: z.ZodType<T>, otherwise: T) => schema.nullish().transform(value => value ?? otherwise)
const generationSchema = z.object({
  eos_token_id: z.union([z.int().min(0), z.array(z.int().min(0)).min(1)]),
  temperature: or(z.number().min(0), 1),
  top_k: or(z.int().min(-1), 0),
  top_p: or(z.number().positive().max(1), 1),
  // vLLM uses these as sampling defaults. They are not supported here, so they must be absent or neutral.
  repetition_penalty: z.literal(1).nullish(),
  presence_penalty: z.literal(0).nullish(),
  frequency_penalty: z.literal(0).nullish(),
  min_p: z.literal(0).nullish(),
  max_new_tokens: z.null().optional(),
})

export interface GenerationConfig {
  /** Token ids that end a text; the first is the tokenizer’s own. */
  readonly endIds: readonly number[]
  /** Sampling defaults. */
  readonly sampling: { readonly temperature: number; readonly topK: number; readonly topP: number }
}

export function parseConfig(file: string, json: unknown): TinyConfig {
  const raw = checked(file, schema, json)
  const {
    num_attention_heads: heads,
    num_key_value_heads: kvHeads,
    head_dim: headWidth,
    num_experts: experts,
  } = raw
  const theta = raw.rope_parameters?.rope_theta ?? raw.rope_theta
  const otherRope = Object.entries(json as object).find(
    ([name, value]) => name.startsWith('rope_') && !KNOWN_ROPE.has(name) && value !== null,
  )
  const problems = [
    (theta ?? undefined) === undefined && 'rope_theta must be a number, here or in rope_parameters',
    (raw.rope_theta ?? theta) !== theta &&
      `rope_theta ${raw.rope_theta} must equal ${theta} in rope_parameters`,
    otherRope !== undefined && `${otherRope[0]} is not supported`,
    (heads % kvHeads !== 0 || (heads / kvHeads) % 2 !== 0) &&
      `${heads} query heads on ${kvHeads} key/value heads: must be an even number per key/value head`,
    ((heads + 2 * kvHeads) * headWidth) % PANEL !== 0 &&
      `head size ${headWidth}: queries, keys and values together must be a multiple of ${PANEL}`,
    raw.num_experts_per_tok > experts &&
      `num_experts_per_tok ${raw.num_experts_per_tok} must be at most num_experts, ${experts}`,
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
    ropeTheta: theta!,
    renormalise: raw.norm_topk_prob,
    tiedHead: raw.tie_word_embeddings,
  }
}

export function parseGeneration(file: string, json: unknown, vocabulary: number): GenerationConfig {
  const { eos_token_id: given, temperature, top_k: topK, top_p: topP } = checked(file, generationSchema, json)
  const endIds = typeof given === 'number' ? [given] : given
  const outside = endIds.find(id => id >= vocabulary)
  if (outside !== undefined)
    throw badModel(file, [`eos_token_id ${outside} must be less than ${vocabulary}, the vocabulary size`])
  return { endIds, sampling: { temperature, topK: Math.max(0, topK), topP } }
}

export function checked<T>(file: string, schema: z.ZodType<T>, json: unknown): T {
  const result = schema.safeParse(json)
  if (result.success) return result.data
  throw badModel(
    file,
    result.error.issues.map(({ path, message }) => `${path.join('.') || 'the file'}: ${message}`),
  )
}

export function badModel(file: string, problems: readonly string[], cause?: unknown): EldrError {
  const more = problems.length > 1 ? ` and ${problems.length - 1} more` : ''
  return new EldrError('ELDR_MODEL_UNFIT', { file, found: `${problems[0]}${more}`, problems, cause })
}
