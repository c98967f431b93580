/**
 * Reads a file of workers without holding up requests. YAML takes some 30 ms for a thousand workers, and some texts that are none take the
 * square of their length: what is not short, and no plain JSON, is read in a thread that is given so much time and memory and no more.
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

/** Shorter ones are read sooner than a thread starts, whatever is in them. */
const SHORT = 16 << 10
const MAX_READ_MS = 10_000
const MAX_HEAP_MIB = 512

/** It says nothing of the text for certain: a machine may be too busy, or out of memory, for a while. */
export class ReadGivenUp extends LookupFailure {}

// Sources run as TypeScript in tests alone, and threads of Node 20 cannot.
const COMPILED = import.meta.url.endsWith('.js')

/** Throws as readWorkerFile does. Where the signal fires first it is as if the file named nobody. */
export async function readBeside(
  file: FileText,
  signal: AbortSignal,
  mostMs = MAX_READ_MS,
): Promise<readonly DiscoveredWorker[]> {
  const { path, text, defaults } = file
  const plain = readPlainJson(path, text, defaults)
  if (plain !== undefined) return plain
  if (text.length <= SHORT || !COMPILED) return readWorkerFile(path, text, defaults)
  const { found = [], problem } = await inThread(file, signal, mostMs)
  if (problem !== undefined) throw new LookupFailure(problem.reason, problem.text)
  return found
}

function inThread(file: FileText, signal: AbortSignal, mostMs: number): Promise<Report> {
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
      end(() => reject(new ReadGivenUp('broken', `${path} ${words}`, cause)))
    const stop = () => end(() => resolve({}))
    const timer = setTimeout(
      () => refuse(`takes more than ${mostMs / 1000} s to read: expected the lists prefill and decode`),
      mostMs,
    )
    signal.addEventListener('abort', stop, { once: true })
    thread.once('message', (report: Report) => end(() => resolve(report)))
    thread.once('error', cause => refuse('cannot be read as YAML or JSON', cause))
    // Settled already where it told something.
    thread.once('exit', () => refuse('cannot be read as YAML or JSON'))
  })
}
