/** Reads a model folder in the Hugging Face layout: configuration, weights, tokenizer. What is broken is said here, before anything is served. */
import { createHash } from 'node:crypto'
import { access, readFile } from 'node:fs/promises'
import { basename, join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { gunzip } from 'node:zlib'
import { EldrError } from '../../errors.ts'
import { parseHeader } from '../../trace/safetensors-header.ts'
import type { Tokenizer } from '../types.ts'
import { badModel, type GenerationConfig, parseConfig, parseGeneration, type TinyConfig } from './config.ts'
import { MOST_KERNEL_BYTES } from './kernel.ts'
import { createBpeTokenizer } from './tokenizer.ts'
import { layOutWeights, packWeights } from './weights.ts'

export interface TinyModel {
  /** The folder's name. */
  readonly name: string
  readonly config: TinyConfig
  /** As `layOutWeights` has them. */
  readonly weights: Float32Array
  /** Of configuration and weights: workers take KV only from their own model. */
  readonly fingerprint: Buffer
  readonly tokenizer: Tokenizer
  readonly generation: GenerationConfig
}

const PLAIN = 'model.safetensors'
/** All bytes at even places, then all at odd places, gzipped: exponents beside exponents take less room. */
const ZIPPED = `${PLAIN}.planes.gz`

/** What can be known of a model without its weights. */
export async function readTinyConfig(folder: string): Promise<Pick<TinyModel, 'name' | 'config'>> {
  const file = join(folder, 'config.json')
  return { name: basename(resolve(folder)), config: parseConfig(file, await readJson(file)) }
}

export async function loadTinyModel(folder: string): Promise<TinyModel> {
  const file = (name: string) => join(folder, name)
  const { name, config } = await readTinyConfig(folder)
  const layout = layOutWeights(config)
  if (layout.bytes > MOST_KERNEL_BYTES / 2) throw badModel(file('config.json'), [`a model of ${Math.round(layout.bytes / 1e6)} MB of weights in float32, too large for this worker`]) // prettier-ignore
  const generationFile = file('generation_config.json')
  const generation = parseGeneration(generationFile, await readJson(generationFile), config.vocabulary)
  const tokenizer = createBpeTokenizer({
    file: file('tokenizer.json'),
    json: await readJson(file('tokenizer.json')),
    configFile: file('tokenizer_config.json'),
    config: await readJson(file('tokenizer_config.json')),
    vocabulary: config.vocabulary,
    endIds: generation.endIds,
  })
  const { path, bytes } = await readWeights(folder, layout.bytes)
  const weights = packWeights(config, path, bytes, parseHeader(bytes, bytes.length, path))
  const fingerprint = createHash('sha256').update(JSON.stringify(config)).update(bytes).digest()
  return { name, config, weights, fingerprint, tokenizer, generation }
}

async function readJson(file: string): Promise<unknown> {
  const text = (await readBytes(file)).toString('utf8')
  try {
    return JSON.parse(text)
  } catch (cause) {
    throw badModel(file, [`no JSON (${cause instanceof Error ? cause.message.replaceAll(/\p{Cc}/gu, '?') : 'unknown'})`], cause)
  }
}

/** The plain file, or the packed one where there is no plain one. `most`: more bytes than any checkpoint of the model has data. */
async function readWeights(folder: string, most: number): Promise<{ path: string; bytes: Uint8Array }> {
  const plain = join(folder, PLAIN)
  if (await exists(plain)) return { path: plain, bytes: await readBytes(plain) }
  const zipped = join(folder, ZIPPED)
  if (!(await exists(zipped))) {
    throw new EldrError('ELDR_FILE_UNREADABLE', { file: folder, found: `neither ${PLAIN} nor ${ZIPPED}` })
  }
  const packed = await readBytes(zipped)
  try {
    return { path: zipped, bytes: interleaved(await promisify(gunzip)(packed, { maxOutputLength: 2 * most + 100_000_000 })) }
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException
    if (code === 'Z_BUF_ERROR') throw new EldrError('ELDR_FILE_TRUNCATED', { file: zipped, found: `${packed.length} bytes`, cause })
    throw badModel(zipped, [`no gzip (${message})`], cause)
  }
}

function interleaved(planes: Uint8Array): Uint8Array {
  const odd = (planes.length + 1) >> 1
  const out = new Uint8Array(planes.length)
  for (let at = 0; at < odd; at++) out[2 * at] = planes[at]!
  for (let at = odd; at < planes.length; at++) out[2 * (at - odd) + 1] = planes[at]!
  return out
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(() => true, () => false) // prettier-ignore
}

async function readBytes(file: string): Promise<Buffer> {
  try {
    return await readFile(file)
  } catch (cause) {
    throw new EldrError('ELDR_FILE_UNREADABLE', { file, found: cause instanceof Error ? cause.message : String(cause), cause })
  }
}
