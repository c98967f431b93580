/** Results that `eldr bench --json` writes and `--compare` reads (docs/guides/bench.md). */
import { availableParallelism, cpus } from 'node:os'
import { readFile } from 'node:fs/promises'
import { EldrError } from '../errors.ts'
import { quoted } from '../trace/quoted.ts'
import { VERSION } from '../version.ts'
import type { Figures } from './figures.ts'

export const BENCH_FORMAT = 'eldr.bench.v1'

/** Setup of a run: plain data, so that two runs can be compared key by key. */
export interface BenchSetup {
  readonly url: string
  readonly api: string
  readonly model: string
  /** Arrivals or concurrency, with their numbers. */
  readonly load: Readonly<Record<string, unknown>>
  readonly prompts: Readonly<Record<string, unknown>>
  readonly limits: Readonly<Record<string, unknown>>
  readonly warmUp: Readonly<Record<string, unknown>>
  readonly seed: number
  /** Extra fields of every request body. */
  readonly body?: Readonly<Record<string, unknown>>
}

export interface BenchResult extends Figures {
  readonly format: typeof BENCH_FORMAT
  readonly version: string
  /** Start time. */
  readonly at: string
  readonly setup: BenchSetup
  /** Machine of the client. */
  readonly machine: { readonly cpu: string; readonly cores: number; readonly node: string }
}

export function benchResult(setup: BenchSetup, figures: Figures, at: Date): BenchResult {
  return {
    format: BENCH_FORMAT,
    version: VERSION,
    at: at.toISOString(),
    setup,
    machine: machineHere(),
    ...figures,
  }
}

export function machineHere(): BenchResult['machine'] {
  return { cpu: cpus()[0]?.model ?? 'unknown', cores: availableParallelism(), node: process.version }
}

/** JSON has no NaN: missing numbers are null. */
export async function readResult(file: string): Promise<BenchResult> {
  const text = await readFile(file, 'utf8').catch((cause: unknown) => {
    throw new EldrError('ELDR_FILE_UNREADABLE', { file, cause })
  })
  const wrong = (found: string) =>
    new EldrError('ELDR_FILE_WRONG_KIND', {
      file,
      found,
      expected: `a result of \`eldr bench --json FILE\` (${BENCH_FORMAT})`,
      todo: 'Create one with `eldr bench --json FILE`.',
    })
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    throw wrong(quoted(text))
  }
  if (!isResult(value))
    throw wrong(`format ${quoted(String((value as { format?: unknown } | null)?.format))}`)
  return value
}

const MEASURED = [
  'ttftMs',
  'tpotMs',
  'itlMs',
  'e2eMs',
  'throughput',
  'tokens',
  'requests',
  'client',
  'setup',
  'machine',
] as const

function isResult(value: unknown): value is BenchResult {
  if (typeof value !== 'object' || value === null || (value as { format?: unknown }).format !== BENCH_FORMAT)
    return false
  return (
    MEASURED.every(key => typeof (value as Record<string, unknown>)[key] === 'object') &&
    Array.isArray((value as BenchResult).errors)
  )
}
