/**
 * Shared by the trace tests: a temporary folder, a small valid trace, and modules of src/ compiled to
 * JavaScript for child processes.
 */
import { execFileSync } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect } from 'vitest'
import { EldrError } from '../src/errors.ts'
import {
  encodeSafetensors,
  type SafetensorsContents,
  type TensorToWrite,
} from '../src/trace/safetensors-write.ts'

const root = join(dirname(fileURLToPath(import.meta.url)), '..')

export function temporaryFolder(): { readonly path: string; remove(): void } {
  const path = mkdtempSync(join(tmpdir(), 'eldr-test-'))
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) }
}

/**
 * The EldrError with which `run` fails. Anything else, including success or a message that does not name the
 * file, fails the test.
 */
export async function failure(file: string, run: () => unknown): Promise<EldrError> {
  try {
    await run()
  } catch (error) {
    if (error instanceof EldrError && error.message.includes(file)) return error
    throw error
  }
  throw new Error(`${file}: no failure`)
}

export async function bytesOf(contents: SafetensorsContents): Promise<Buffer> {
  const chunks: Uint8Array[] = []
  for await (const chunk of encodeSafetensors(contents)) chunks.push(chunk)
  return Buffer.concat(chunks)
}

/** A file of any header and data, valid or not. `length` overrides the length field. */
export function rawFile(
  header: string | Uint8Array,
  data: Uint8Array = new Uint8Array(0),
  length?: bigint,
): Buffer {
  const json = Buffer.from(header)
  const prefix = Buffer.alloc(8)
  prefix.writeBigUInt64LE(length ?? BigInt(json.length))
  return Buffer.concat([prefix, json, data])
}

/** Three requests, two layers, four experts, top-2; every tensor that a trace may have, all valid. */
export const traceMetadata: Readonly<Record<string, string>> = {
  format: 'eldr.trace.v1',
  model: 'toy',
  layers: '2',
  experts: '4',
  top_k: '2',
  domains: 'code,law',
  workload: 'task',
  split: 'calibration',
  recent_half_life: '64',
}
export const traceTensors = {
  prefill_counts: {
    dtype: 'U16',
    shape: [3, 2, 4],
    data: new Uint16Array([3, 3, 0, 0, 1, 2, 3, 0, 4, 0, 4, 0, 4, 4, 0, 0, 1, 0, 0, 1, 0, 1, 1, 0]),
  },
  prompt_tokens: { dtype: 'U16', shape: [3], data: new Uint16Array([3, 4, 1]) },
  domain: { dtype: 'U8', shape: [3], data: new Uint8Array([0, 1, 1]) },
  decode_steps: { dtype: 'U16', shape: [3], data: new Uint16Array([2, 1, 0]) },
  decode_counts: {
    dtype: 'U8',
    shape: [3, 2, 4],
    data: new Uint8Array([2, 1, 1, 0, 0, 0, 2, 2, 0, 1, 1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
  },
  // [request][step][layer][choice]; the second step of request 1 and all of request 2 are padding.
  decode_expert_ids: {
    dtype: 'U8',
    shape: [3, 2, 2, 2],
    data: new Uint8Array([0, 1, 2, 3, 2, 0, 3, 2, 1, 2, 0, 3, 255, 255, 255, 255, 9, 9, 9, 9, 9, 9, 9, 9]),
  },
  prefill_recent: { dtype: 'F32', shape: [3, 2, 4], data: new Float32Array(24).fill(0.5) },
  gate_prob_sum: { dtype: 'F16', shape: [2, 2, 4], data: new Uint16Array(16).fill(0x3800) }, // 0.5
  gate_logit_mean: { dtype: 'F16', shape: [2, 2, 4], data: new Uint16Array(16).fill(0xc000) }, // −2
} as const satisfies Record<string, TensorToWrite>

export type TraceChanges = {
  metadata?: Record<string, string | undefined>
  tensors?: Record<string, TensorToWrite | undefined>
}

/** The valid trace with some parts replaced, or removed if undefined. */
export function traceWith({ metadata, tensors }: TraceChanges = {}): SafetensorsContents {
  return {
    metadata: kept({ ...traceMetadata, ...metadata }),
    tensors: kept<TensorToWrite>({ ...traceTensors, ...tensors }),
  }
}

function kept<T>(values: Record<string, T | undefined>): Record<string, T> {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as Record<
    string,
    T
  >
}

/**
 * Compiles modules of src/ and their imports into `folder` for plain Node: Node 20 does not run TypeScript,
 * and dist/ may be stale or absent.
 */
export function compileModules(folder: string, modules: readonly string[]): void {
  const config = {
    extends: join(root, 'tsconfig.build.json'),
    compilerOptions: {
      rootDir: join(root, 'src'),
      outDir: folder,
      declaration: false,
      typeRoots: [join(root, 'node_modules', '@types')],
    },
    files: ['math/webassembly.d.ts', ...modules].map(module => join(root, 'src', module)),
    include: [],
  }
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config))
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}')
  const tsc = join(dirname(createRequire(import.meta.url).resolve('typescript/package.json')), 'bin', 'tsc')
  execFileSync(process.execPath, [tsc, '-p', folder], { stdio: 'inherit' })
  for (const module of modules) expect(existsSync(join(folder, module.replace(/\.ts$/, '.js')))).toBe(true)
}
