/**
 * Parses a file of workers without blocking requests. YAML takes about 30 ms per thousand workers, and some
 * invalid texts take quadratic time. A text that is neither short nor plain JSON is parsed in a thread with
 * limited time and memory.
 */
import { Worker } from 'node:worker_threads'
import type { RankDefaults } from '../config/worker-form.ts'
import { type DiscoveredWorker, LookupFailure, type Report } from './source.ts'
import { readPlainJson, readWorkerFile } from './worker-file.ts'

export interface FileText {
  readonly path: string
  readonly text: string
  readonly defaults: RankDefaults
}

/** Shorter texts parse faster than a thread starts. */
const SHORT_BYTES = 16 << 10
const MAX_READ_MS = 10_000
const MAX_HEAP_MIB = 512

/** The thread ran out of time or memory. The text may still be valid: the machine may have been busy. */
export class ReadAborted extends LookupFailure {}

// Tests run the TypeScript sources, which threads of Node 20 cannot.
const COMPILED = import.meta.url.endsWith('.js')

/** Throws like readWorkerFile. Returns no workers if the signal fires first. */
export async function readOffThread(
  file: FileText,
  signal: AbortSignal,
  maxMs = MAX_READ_MS,
): Promise<readonly DiscoveredWorker[]> {
  const { path, text, defaults } = file
  const plain = readPlainJson(path, text, defaults)
  if (plain !== undefined) return plain
  if (text.length <= SHORT_BYTES || !COMPILED) return readWorkerFile(path, text, defaults)
  const { found = [], problem } = await inThread(file, signal, maxMs)
  if (problem !== undefined) throw new LookupFailure(problem.reason, problem.text)
  return found
}

function inThread(file: FileText, signal: AbortSignal, maxMs: number): Promise<Report> {
  const { path } = file
  return new Promise((resolve, reject) => {
    if (signal.aborted) return resolve({})
    const thread = new Worker(new URL('./worker-file-thread.js', import.meta.url), {
      workerData: file,
      resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MIB },
    })
    const end = (finish: () => void) => {
      clearTimeout(timer)
      signal.removeEventListener('abort', stop)
      void thread.terminate()
      finish()
    }
    const refuse = (words: string, cause?: unknown) =>
      end(() => reject(new ReadAborted('broken', `${path} ${words}`, cause)))
    const stop = () => end(() => resolve({}))
    const timer = setTimeout(
      () => refuse(`takes more than ${maxMs / 1000} s to read: expected the lists prefill and decode`),
      maxMs,
    )
    signal.addEventListener('abort', stop, { once: true })
    thread.once('message', (report: Report) => end(() => resolve(report)))
    thread.once('error', cause => refuse('is not valid YAML or JSON', cause))
    // No effect if a message has arrived.
    thread.once('exit', () => refuse('is not valid YAML or JSON'))
  })
}
