/**
 * Reads a model folder in the Hugging Face layout: configuration, weights, tokenizer. Errors are reported
 * here, before the worker serves anything.
 */
import { createHash } from 'node:crypto'
import { lstat, readFile, stat } from 'node:fs/promises'
import { basename, join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { gunzip } from 'node:zlib'
import { EldrError } from '../../errors.ts'
import { parseHeader } from '../../trace/safetensors-header.ts'
import type { Tokenizer } from '../types.ts'
import { badModel, type GenerationConfig, parseConfig, parseGeneration, type TinyConfig } from './config.ts'
import { MAX_KERNEL_BYTES } from './kernel.ts'
import { layOutMemory } from './memory.ts'
import { createBpeTokenizer } from './tokenizer.ts'
import { layOutWeights, packWeights } from './weights.ts'

export interface TinyModel {
  /** Name of the folder. */
  readonly name: string
  readonly config: TinyConfig
  /** In the layout of `layOutWeights`. */
  readonly weights: Float32Array
  /** Hash of configuration and weights: workers accept KV only from the same model. */
  readonly fingerprint: Buffer
  readonly tokenizer: Tokenizer
  readonly generation: GenerationConfig
}

const PLAIN = 'model.safetensors'
/** All bytes at even offsets, then all at odd offsets, gzipped: grouping the exponents compresses better. */
const ZIPPED = `${PLAIN}.planes.gz`

const TEMPLATE = 'chat_template.jinja'
/** Vocabularies of a million tokens are smaller. */
const MAX_JSON_BYTES = 64e6

/** Reads what is known of a model without its weights. */
export async function readTinyConfig(folder: string): Promise<Pick<TinyModel, 'name' | 'config'>> {
  const file = join(folder, 'config.json')
  return { name: basename(resolve(folder)), config: parseConfig(file, await readJson(file)) }
}

export async function loadTinyModel(folder: string): Promise<TinyModel> {
  const file = (name: string) => join(folder, name)
  const { name, config } = await readTinyConfig(folder)
  const layout = layOutWeights(config)
  if (layout.bytes > MAX_KERNEL_BYTES / 2)
    throw badModel(file('config.json'), [
      `${Math.round(layout.bytes / 1e6)} MB of weights in float32: too large for this worker`,
    ])
  checkPositions(file('config.json'), config)
  const generationFile = file('generation_config.json')
  const generation = parseGeneration(generationFile, await readJson(generationFile), config.vocabulary)
  const tokenizer = createBpeTokenizer({
    file: file('tokenizer.json'),
    json: await readJson(file('tokenizer.json')),
    configFile: file('tokenizer_config.json'),
    config: await readJson(file('tokenizer_config.json')),
    template: (await isThere(file(TEMPLATE)))
      ? { file: file(TEMPLATE), text: await readText(file(TEMPLATE)) }
      : undefined,
    vocabulary: config.vocabulary,
    endIds: generation.endIds,
  })
  const { path, bytes } = await readWeights(folder, layout.bytes)
  const weights = packWeights(config, path, bytes, parseHeader(bytes, bytes.length, path))
  const fingerprint = createHash('sha256').update(JSON.stringify(config)).update(bytes).digest()
  return { name, config, weights, fingerprint, tokenizer, generation }
}

/**
 * Position tables come before the first KV block: if they leave no room for one, fewer blocks do not help.
 */
function checkPositions(file: string, config: TinyConfig): void {
  const { bytes } = layOutMemory(config, 1)
  if (bytes <= MAX_KERNEL_BYTES) return
  throw new EldrError('ELDR_MODEL_UNFIT', {
    file,
    found: `max_position_embeddings ${config.positions}: ${Math.round(bytes / 1e6)} MB of weights and position tables`,
    expected: `at most the ${Math.floor(MAX_KERNEL_BYTES / 1e6)} MB that WebAssembly can address`,
    todo: 'Set max_position_embeddings to the longest context that you need.',
  })
}

async function readJson(file: string): Promise<unknown> {
  const text = await readText(file)
  try {
    return JSON.parse(text)
  } catch (cause) {
    throw badModel(
      file,
      [`invalid JSON (${cause instanceof Error ? cause.message.replaceAll(/\p{Cc}/gu, '?') : 'unknown'})`],
      cause,
    )
  }
}

async function readText(file: string): Promise<string> {
  return (await readBytes(file, MAX_JSON_BYTES)).toString('utf8')
}

/**
 * The plain file, or the compressed one if there is no plain file. `layoutBytes`: size of the model in
 * float32.
 */
async function readWeights(
  folder: string,
  layoutBytes: number,
): Promise<{ path: string; bytes: Uint8Array }> {
  // More than any checkpoint of the model, including header and alignment.
  const most = 2 * layoutBytes + 100e6
  const plain = join(folder, PLAIN)
  if (await isThere(plain)) return { path: plain, bytes: await readBytes(plain, most) }
  const zipped = join(folder, ZIPPED)
  if (!(await isThere(zipped))) {
    throw new EldrError('ELDR_FILE_UNREADABLE', { file: folder, found: `neither ${PLAIN} nor ${ZIPPED}` })
  }
  const packed = await readBytes(zipped, most)
  try {
    return { path: zipped, bytes: interleaved(await promisify(gunzip)(packed, { maxOutputLength: most })) }
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException
    if (code === 'Z_BUF_ERROR')
      throw new EldrError('ELDR_FILE_TRUNCATED', { file: zipped, found: `${packed.length} bytes`, cause })
    if (code === 'ERR_BUFFER_TOO_LARGE')
      throw badModel(
        zipped,
        [`more than ${most} bytes when decompressed: not the weights of the model in config.json`],
        cause,
      )
    throw badModel(zipped, [`invalid gzip (${message})`], cause)
  }
}

function interleaved(planes: Uint8Array): Uint8Array {
  const odd = (planes.length + 1) >> 1
  const out = new Uint8Array(planes.length)
  for (let at = 0; at < odd; at++) out[2 * at] = planes[at]!
  for (let at = odd; at < planes.length; at++) out[2 * (at - odd) + 1] = planes[at]!
  return out
}

/** A dangling link counts as present: its target is what is missing. */
async function isThere(path: string): Promise<boolean> {
  try {
    await lstat(path)
    return true
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return false
    throw unreadable(path, cause)
  }
}

/** Checked before opening: reading a pipe or a device might never end. */
async function readBytes(file: string, maxBytes: number): Promise<Buffer> {
  const about = await stat(file).catch((cause: unknown) => Promise.reject(unreadable(file, cause)))
  if (!about.isFile()) throw new EldrError('ELDR_FILE_UNREADABLE', { file, found: 'not a regular file' })
  if (about.size > maxBytes) throw badModel(file, [`${about.size} bytes, maximum ${maxBytes}`])
  return readFile(file).catch((cause: unknown) => Promise.reject(unreadable(file, cause)))
}

function unreadable(file: string, cause: unknown): EldrError {
  return new EldrError('ELDR_FILE_UNREADABLE', {
    file,
    found: cause instanceof Error ? cause.message : String(cause),
    cause,
  })
}
