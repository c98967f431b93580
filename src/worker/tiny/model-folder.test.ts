/** Model folders broken in every way that a copy, an edit or a mix-up can break them. */
import { execFileSync } from 'node:child_process'
import {
  copyFileSync,
  cpSync,
  mkdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SMALL_CONFIG, smallTensors, writeSmallModel } from '../../../test/tiny-support.ts'
import { temporaryFolder } from '../../../test/trace-support.ts'
import { requestOf } from '../../../test/worker-support.ts'
import { EldrError } from '../../errors.ts'
import type { TensorToWrite } from '../../trace/safetensors-write.ts'
import { loadTinyModel } from './model-folder.ts'
import { createTiny } from './tiny.ts'

const folder = temporaryFolder()
const whole = join(folder.path, 'whole')
beforeAll(() => writeSmallModel(whole))
afterAll(() => folder.remove())

let copies = 0
function copyOf(change: (at: (name: string) => string) => void): string {
  const path = join(folder.path, `copy${copies++}`)
  cpSync(whole, path, { recursive: true })
  change(name => join(path, name))
  return path
}

async function failureOf(path: string): Promise<string> {
  const error = await loadTinyModel(path).then(
    () => undefined,
    (error: unknown) => error,
  )
  expect(error).toBeInstanceOf(EldrError)
  return (error as EldrError).message
}

const withConfig = (changes: object) =>
  copyOf(at => writeFileSync(at('config.json'), JSON.stringify({ ...SMALL_CONFIG, ...changes })))
const withTensors = async (change: (tensors: Record<string, TensorToWrite>) => void) => {
  const tensors = smallTensors()
  change(tensors)
  return writeSmallModel(join(folder.path, `tensors${copies++}`), tensors)
}
/** Bytes at even offsets first, then those at odd offsets, gzipped. */
const packed = (file: string) => {
  const bytes = readFileSync(file)
  return gzipSync(Buffer.concat([0, 1].map(odd => bytes.filter((_, at) => (at & 1) === odd))))
}
const GATE = 'model.layers.1.mlp.gate.weight'

describe('a model folder', () => {
  it('is read to the same weights, plain or compressed', async () => {
    const plain = await loadTinyModel(whole)
    const zipped = await loadTinyModel(
      copyOf(at => {
        writeFileSync(at('model.safetensors.planes.gz'), packed(at('model.safetensors')))
        rmSync(at('model.safetensors'))
      }),
    )
    expect(zipped.weights).toEqual(plain.weights)
    expect(zipped.fingerprint).toEqual(plain.fingerprint)
    expect(plain).toMatchObject({
      name: 'whole',
      config: { layers: 2, experts: 32, topK: 4, positions: 512 },
      generation: { endIds: [0, 3], sampling: { temperature: 0.8, topK: 50, topP: 1 } },
    })
  })

  it('has another fingerprint if a weight or a configuration value differs', async () => {
    const { fingerprint } = await loadTinyModel(whole)
    const other = await withTensors(tensors => ((tensors[GATE]!.data as Uint16Array)[5]! ^= 1))
    expect((await loadTinyModel(other)).fingerprint).not.toEqual(fingerprint)
    expect((await loadTinyModel(withConfig({ rope_theta: 20_000 }))).fingerprint).not.toEqual(fingerprint)
  })

  it.each<[string, object, RegExp]>([
    ['another architecture', { architectures: ['LlamaForCausalLM'] }, /architectures.0.*ELDR_MODEL_UNFIT/],
    ['no layers', { num_hidden_layers: 0 }, /num_hidden_layers/],
    ['a hidden size that is not a multiple of the panel', { hidden_size: 40 }, /hidden_size/],
    ['an odd number of query heads per key head', { num_key_value_heads: 4 }, /4 query heads on 4/],
    ['more chosen experts than experts', { num_experts_per_tok: 40 }, /num_experts_per_tok 40/],
    ['another activation', { hidden_act: 'gelu' }, /hidden_act/],
    ['scaled positions', { rope_scaling: { type: 'yarn', factor: 4 } }, /rope_scaling/],
    ['quantised weights', { quantization_config: { bits: 4 } }, /quantization_config/],
    [
      'positions that are scaled in the newer format',
      { rope_parameters: { rope_type: 'yarn', rope_theta: 10_000, factor: 4 } },
      /rope_parameters/,
    ],
    [
      'two different values of rope_theta',
      { rope_parameters: { rope_type: 'default', rope_theta: 20_000 } },
      /rope_theta 10000 must equal 20000/,
    ],
    ['no rope_theta', { rope_theta: undefined }, /rope_theta must be a number/],
    ['partial rotation', { partial_rotary_factor: 0.5 }, /partial_rotary_factor/],
    [
      'partial rotation in the newer format',
      { rope_parameters: { rope_theta: 10_000, partial_rotary_factor: 0.5 } },
      /rope_parameters.partial_rotary_factor/,
    ],
    ['another rope parameter', { rope_interleave: true }, /rope_interleave is not supported/],
    [
      'positions beyond exact angles',
      { max_position_embeddings: 2 ** 24 },
      /max_position_embeddings.*1048576/,
    ],
    [
      'positions beyond the memory',
      { max_position_embeddings: 2 ** 20, head_dim: 1_024, num_hidden_layers: 1 },
      /max_position_embeddings 1048576: \d+ MB.*longest context that you need/,
    ],
    ['dense layers', { mlp_only_layers: [0] }, /mlp_only_layers/],
    ['a size that is not a number', { hidden_size: '32' }, /hidden_size/],
    [
      'weights beyond what can be addressed',
      { num_experts: 65_504, moe_intermediate_size: 4_096 },
      /too large/,
    ],
    ['more layers than the weights have', { num_hidden_layers: 3 }, /model.layers.2.*ELDR_TENSOR_MISSING/],
    ['fewer layers than the weights have', { num_hidden_layers: 1 }, /does not belong to.*ELDR_MODEL_UNFIT/],
    ['wider experts than the weights have', { moe_intermediate_size: 32 }, /ELDR_TENSOR_BAD_SHAPE/],
    ['a missing output head', { tie_word_embeddings: false }, /lm_head.*ELDR_TENSOR_MISSING/],
  ])('is refused for %s in config.json', async (_, changes, said) => {
    expect(await failureOf(withConfig(changes))).toMatch(said)
  })

  it('may have rope parameters in the newer format', async () => {
    const { fingerprint } = await loadTinyModel(whole)
    const newer = {
      rope_theta: undefined,
      rope_parameters: { rope_type: 'default', rope_theta: 10_000 },
      partial_rotary_factor: 1,
    }
    expect((await loadTinyModel(withConfig(newer))).fingerprint).toEqual(fingerprint)
    expect(
      (await loadTinyModel(withConfig({ ...newer, rope_theta: 10_000, rope_local_base_freq: null })))
        .fingerprint,
    ).toEqual(fingerprint)
  })

  it.each<[string, object, RegExp]>([
    ['a penalty', { repetition_penalty: 1.05 }, /repetition_penalty/],
    ['a presence penalty', { presence_penalty: 0.5 }, /presence_penalty/],
    ['a frequency penalty', { frequency_penalty: -1 }, /frequency_penalty/],
    ['min_p', { min_p: 0.05 }, /min_p/],
    ['a token limit', { max_new_tokens: 2_048 }, /max_new_tokens/],
  ])('is refused for %s in generation_config.json, which vLLM would apply', async (_, changes, said) => {
    const withGeneration = (more: object) =>
      copyOf(at => writeFileSync(at('generation_config.json'), JSON.stringify({ eos_token_id: 0, ...more })))
    expect(await failureOf(withGeneration(changes))).toMatch(said)
    const neutral = {
      repetition_penalty: 1,
      presence_penalty: 0,
      frequency_penalty: null,
      min_p: 0,
      top_k: null,
      max_new_tokens: null,
      do_sample: false,
      no_repeat_ngram_size: 3,
    }
    expect((await loadTinyModel(withGeneration(neutral))).generation).toEqual({
      endIds: [0],
      sampling: { temperature: 1, topK: 0, topP: 1 },
    })
  })

  it('is refused for files that are not regular or too large', async () => {
    for (const name of ['config.json', 'tokenizer.json', 'model.safetensors']) {
      const instead = (make: (path: string) => void) =>
        copyOf(at => {
          rmSync(at(name))
          make(at(name))
        })
      for (const make of [
        (path: string) => mkdirSync(path),
        (path: string) => symlinkSync('/dev/zero', path),
        (path: string) => void execFileSync('mkfifo', [path]),
      ])
        expect(await failureOf(instead(make))).toMatch(
          new RegExp(`${name}.*not a regular file.*ELDR_FILE_UNREADABLE`),
        )
    }
    expect(await failureOf(copyOf(at => truncateSync(at('tokenizer.json'), 64e6 + 1)))).toMatch(
      /tokenizer.json.*64000001 bytes, maximum 64000000.*ELDR_MODEL_UNFIT/,
    )
    expect(await failureOf(copyOf(at => truncateSync(at('model.safetensors'), 400e6)))).toMatch(
      /400000000 bytes, maximum.*ELDR_MODEL_UNFIT/,
    )
  })

  it('is refused for a dangling link to weights, even if compressed weights exist', async () => {
    const path = copyOf(at => {
      writeFileSync(at('model.safetensors.planes.gz'), packed(at('model.safetensors')))
      rmSync(at('model.safetensors'))
      symlinkSync('gone.safetensors', at('model.safetensors'))
    })
    expect(await failureOf(path)).toMatch(/model.safetensors.*ENOENT.*ELDR_FILE_UNREADABLE/)
  })

  it('uses the template in chat_template.jinja', async () => {
    expect(await failureOf(copyOf(at => writeFileSync(at('chat_template.jinja'), '{{ messages }}')))).toMatch(
      /chat_template.jinja/,
    )
  })

  it('is refused if a file is missing, invalid JSON or another file', async () => {
    for (const name of ['config.json', 'generation_config.json', 'tokenizer.json', 'tokenizer_config.json']) {
      expect(await failureOf(copyOf(at => rmSync(at(name))))).toMatch(
        new RegExp(`${name}.*ELDR_FILE_UNREADABLE`),
      )
      expect(await failureOf(copyOf(at => truncateSync(at(name), 40)))).toMatch(
        new RegExp(`${name}.*ELDR_MODEL_UNFIT`),
      )
    }
    expect(await failureOf(copyOf(at => rmSync(at('model.safetensors'))))).toMatch(
      /neither model.safetensors nor.*ELDR_FILE_UNREADABLE/,
    )
    expect(await failureOf(copyOf(at => copyFileSync(at('config.json'), at('tokenizer.json'))))).toMatch(
      'ELDR_MODEL_UNFIT',
    )
    expect(await failureOf(join(folder.path, 'nowhere'))).toMatch('ELDR_FILE_UNREADABLE')
    const ends = (ids: unknown) =>
      copyOf(at => writeFileSync(at('generation_config.json'), JSON.stringify({ eos_token_id: ids })))
    expect(await failureOf(ends([8_192]))).toMatch(/eos_token_id 8192/)
    expect(await failureOf(ends('0'))).toMatch('eos_token_id')
  })

  it('is refused if its weights are truncated, of another type, not finite or incomplete', async () => {
    const cut = (bytes: number) => copyOf(at => truncateSync(at('model.safetensors'), bytes))
    expect(await failureOf(cut(4))).toMatch('ELDR_FILE_TRUNCATED')
    expect(await failureOf(cut(5_000))).toMatch('ELDR_FILE_TRUNCATED')
    expect(await failureOf(cut(100_000))).toMatch('ELDR_FILE_TRUNCATED')
    expect(await failureOf(copyOf(at => copyFileSync(at('config.json'), at('model.safetensors'))))).toMatch(
      'ELDR_FILE_NOT_SAFETENSORS',
    )
    const zipped = (change: (bytes: Buffer) => Buffer) =>
      copyOf(at => {
        writeFileSync(at('model.safetensors.planes.gz'), change(packed(at('model.safetensors'))))
        rmSync(at('model.safetensors'))
      })
    expect(await failureOf(zipped(bytes => bytes.subarray(0, 50_000)))).toMatch('ELDR_FILE_TRUNCATED')
    expect(await failureOf(zipped(() => gzipSync(Buffer.alloc(120e6), { level: 1 })))).toMatch(
      /more than \d+ bytes when decompressed.*ELDR_MODEL_UNFIT/,
    )
    expect(await failureOf(zipped(() => Buffer.from('not gzip')))).toMatch(/invalid gzip.*ELDR_MODEL_UNFIT/)
    expect(await failureOf(await withTensors(tensors => delete tensors[GATE]))).toMatch(
      /mlp.gate.*ELDR_TENSOR_MISSING/,
    )
    expect(
      await failureOf(await withTensors(tensors => ((tensors[GATE]!.data as Uint16Array)[7] = 0x7fc0))),
    ).toMatch(/NaN at 7.*ELDR_TENSOR_BAD_VALUE/)
    const bytes = { dtype: 'U8', shape: [32, 32], data: new Uint8Array(1_024) } as const
    expect(await failureOf(await withTensors(tensors => (tensors[GATE] = bytes)))).toMatch(
      'ELDR_TENSOR_BAD_TYPE',
    )
  })

  it('is refused with more KV blocks than WebAssembly can address', async () => {
    const backEnd = createTiny({ model: await loadTinyModel(whole), pace: 'real' })
    expect(() => backEnd.allocate(2 ** 24, 16)).toThrow(/--blocks.*ELDR_USAGE/)
    const none = createTiny({
      model: await loadTinyModel(whole),
      pace: 'real',
      kernel: () => {
        throw new RangeError('no memory')
      },
    })
    expect(() => none.allocate(16, 16)).toThrow(/available memory.*ELDR_USAGE/)
  })
})

describe('a request to a model', () => {
  it('is refused if it has tokens outside the vocabulary, or more tokens than the model has positions', async () => {
    const backEnd = createTiny({ model: await loadTinyModel(whole), pace: 'real' })
    await expect(backEnd.prepare(requestOf([5, 8_192]))).rejects.toMatchObject({
      status: 400,
      message: 'Token id 8192 is out of vocabulary',
    })
    await expect(backEnd.prepare(requestOf([5, -1]))).rejects.toMatchObject({ status: 400 })
    await expect(backEnd.prepare(requestOf(new Int32Array(500), { maxTokens: 13 }))).rejects.toMatchObject({
      status: 400,
    })
    await expect(backEnd.prepare(requestOf(new Int32Array(500), { maxTokens: 12 }))).resolves.toMatchObject({
      salt: expect.stringMatching(/^tiny /) as string,
    })
  })
})
