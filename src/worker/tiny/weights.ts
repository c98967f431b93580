/**
 * Layout of the weights in the kernel’s memory, and how they are loaded from a checkpoint. A matrix [out][in]
 * is stored in panels, as `matmul` requires; queries, keys and values form one matrix, as do an expert’s gate
 * and up projections.
 */
import { EldrError } from '../../errors.ts'
import { decodeBfloat16, decodeFloat16 } from '../../math/float16.ts'
import { checkTensor, checkValues } from '../../trace/file-checks.ts'
import type { Dtype } from '../../trace/dtype.ts'
import { quoted } from '../../trace/quoted.ts'
import type { SafetensorsHeader } from '../../trace/safetensors-header.ts'
import { badModel, type TinyConfig } from './config.ts'
import { PANEL } from './kernel.ts'

/** Byte offsets. */
export interface LayerWeights {
  readonly inputNorm: number
  readonly qkv: number
  readonly qNorm: number
  readonly kNorm: number
  readonly output: number
  readonly expertsNorm: number
  readonly gate: number
  /** Of expert 0; the others follow at these strides. */
  readonly gateUp: number
  readonly gateUpBytes: number
  readonly down: number
  readonly downBytes: number
}

export interface WeightsLayout {
  /** One row per token. */
  readonly embedding: number
  readonly head: number
  readonly finalNorm: number
  readonly layers: readonly LayerWeights[]
  readonly bytes: number
}

export function layOutWeights(config: TinyConfig): WeightsLayout {
  const { hidden, heads, kvHeads, headWidth, experts, expertWidth, vocabulary } = config
  let next = 0
  /** All sizes are multiples of 16 numbers, so everything is aligned to 64 bytes. */
  const take = (numbers: number) => {
    const at = next
    next += 4 * numbers
    return at
  }
  const embedding = take(vocabulary * hidden)
  const head = take(vocabulary * hidden)
  const finalNorm = take(hidden)
  const layers = Array.from({ length: config.layers }, (): LayerWeights => ({
    inputNorm: take(hidden),
    qkv: take((heads + 2 * kvHeads) * headWidth * hidden),
    qNorm: take(headWidth),
    kNorm: take(headWidth),
    output: take(hidden * heads * headWidth),
    expertsNorm: take(hidden),
    gate: take(experts * hidden),
    gateUp: take(experts * 2 * expertWidth * hidden),
    gateUpBytes: 4 * 2 * expertWidth * hidden,
    down: take(experts * hidden * expertWidth),
    downBytes: 4 * hidden * expertWidth,
  }))
  return { embedding, head, finalNorm, layers, bytes: next }
}

/** Loads all weights into the layout. `bytes`: the whole checkpoint with a validated header. */
export function packWeights(
  config: TinyConfig,
  file: string,
  bytes: Uint8Array,
  { tensors }: SafetensorsHeader,
): Float32Array {
  const { hidden, heads, kvHeads, headWidth, experts, expertWidth, vocabulary } = config
  const layout = layOutWeights(config)
  const packed = new Float32Array(layout.bytes / 4)
  const left = new Set(tensors.keys())
  const numbersOf = converter(Math.max(0, ...[...tensors.values()].map(({ begin, end }) => end - begin)))

  function read(name: string, ...shape: number[]): Float32Array {
    const info = tensors.get(name)
    if (info === undefined)
      throw new EldrError('ELDR_TENSOR_MISSING', { file, expected: `tensor ${quoted(name)}`, todo: MISFIT })
    checkTensor(file, info, ['BF16', 'F16', 'F32'], shape)
    left.delete(name)
    const values = numbersOf(info.dtype, bytes.subarray(info.begin, info.end))
    checkValues(file, name, values, Number.isFinite, 'a finite number')
    return values
  }
  const rows = (at: number, name: string, ...shape: number[]) => packed.set(read(name, ...shape), at / 4)
  /** `from`: index of its first output in the matrix at `at`. */
  const matrix = (at: number, from: number, outputs: number, inputs: number, name: string) =>
    pack(read(name, outputs, inputs), inputs, packed, at / 4, from)

  rows(layout.embedding, 'model.embed_tokens.weight', vocabulary, hidden)
  matrix(layout.head, 0, vocabulary, hidden, config.tiedHead ? 'model.embed_tokens.weight' : 'lm_head.weight')
  rows(layout.finalNorm, 'model.norm.weight', hidden)
  layout.layers.forEach((layer, l) => {
    const of = `model.layers.${l}`
    const [q, kv] = [heads * headWidth, kvHeads * headWidth]
    rows(layer.inputNorm, `${of}.input_layernorm.weight`, hidden)
    matrix(layer.qkv, 0, q, hidden, `${of}.self_attn.q_proj.weight`)
    matrix(layer.qkv, q, kv, hidden, `${of}.self_attn.k_proj.weight`)
    matrix(layer.qkv, q + kv, kv, hidden, `${of}.self_attn.v_proj.weight`)
    rows(layer.qNorm, `${of}.self_attn.q_norm.weight`, headWidth)
    rows(layer.kNorm, `${of}.self_attn.k_norm.weight`, headWidth)
    matrix(layer.output, 0, hidden, q, `${of}.self_attn.o_proj.weight`)
    rows(layer.expertsNorm, `${of}.post_attention_layernorm.weight`, hidden)
    matrix(layer.gate, 0, experts, hidden, `${of}.mlp.gate.weight`)
    for (let e = 0; e < experts; e++) {
      const gateUp = layer.gateUp + e * layer.gateUpBytes
      matrix(gateUp, 0, expertWidth, hidden, `${of}.mlp.experts.${e}.gate_proj.weight`)
      matrix(gateUp, expertWidth, expertWidth, hidden, `${of}.mlp.experts.${e}.up_proj.weight`)
      matrix(
        layer.down + e * layer.downBytes,
        0,
        hidden,
        expertWidth,
        `${of}.mlp.experts.${e}.down_proj.weight`,
      )
    }
  })
  if (config.tiedHead) left.delete('lm_head.weight')
  if (left.size > 0)
    throw badModel(
      file,
      [...left].map(name => `tensor ${quoted(name)} does not belong to the model in config.json`),
    )
  return packed
}

const MISFIT =
  'The weights belong to another model than config.json, or some are missing: copy both from one place.'

/**
 * Values of a tensor as float32, valid until the next call. Tensors may be unaligned, so they are copied,
 * always to the same buffer, because a checkpoint has about a thousand of them.
 */
function converter(maxBytes: number): (dtype: Dtype, bytes: Uint8Array) => Float32Array {
  const staged = new ArrayBuffer(Math.ceil(maxBytes / 4) * 4)
  const numbers = new Float32Array(maxBytes / 2)
  return (dtype, bytes) => {
    new Uint8Array(staged).set(bytes)
    if (dtype === 'F32') return new Float32Array(staged, 0, bytes.length / 4)
    const halves = new Uint16Array(staged, 0, bytes.length / 2)
    const values = numbers.subarray(0, halves.length)
    if (dtype === 'F16') decodeFloat16(halves, values)
    else decodeBfloat16(halves, values)
    return values
  }
}

/**
 * Copies values [outputs][inputs] into panels [outputs / PANEL][inputs][PANEL] at `at`; the first output is
 * the matrix’s output `from`.
 */
function pack(values: Float32Array, inputs: number, packed: Float32Array, at: number, from: number): void {
  const outputs = values.length / inputs
  for (let row = 0, count = 0; row < outputs; row += count) {
    const lane = (from + row) % PANEL
    count = Math.min(PANEL - lane, outputs - row)
    let to = at + (from + row - lane) * inputs + lane
    for (let i = 0; i < inputs; i++, to += PANEL) {
      for (let r = 0, source = row * inputs + i; r < count; r++, source += inputs)
        packed[to + r] = values[source]!
    }
  }
}
