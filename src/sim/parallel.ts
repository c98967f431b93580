/**
 * Independent jobs on all cores. What a job needs (a trace, an artifact) is too large to send with each, so a module prepares it once a
 * thread: it exports `prepare(data)`, which gives the function that runs a job. Results come back in the order of the jobs, whichever
 * thread was faster.
 */
import { availableParallelism } from 'node:os'
import { Worker } from 'node:worker_threads'
import { EldrError, type ErrorCode, type ErrorDetail } from '../errors.ts'

/** Data, jobs and results travel between threads: plain values and arrays; shared memory is shared. */
export interface JobModule<Data, Job, Result> {
  prepare(data: Data): Promise<(job: Job) => Result | Promise<Result>>
}

export interface ParallelInput<Data, Job> {
  /** Of a module that exports `prepare`. */
  readonly module: URL
  readonly data: Data
  readonly jobs: readonly Job[]
  /** As many as there are cores unless told; 1 runs in this thread. */
  readonly threads?: number
  readonly onProgress?: (done: number, of: number) => void
}

/** What a thread answers. */
export type Answer = { readonly at: number; readonly result: unknown } | { readonly failure: Failure }

/** Errors lose their class between threads; this is what is left of one. */
export interface Failure {
  readonly message: string
  readonly code?: ErrorCode
  readonly detail?: ErrorDetail
}

// Sources run as TypeScript in tests alone, and threads of Node 20 cannot: there everything runs in this one.
const COMPILED = import.meta.url.endsWith('.js')

export async function runParallel<Data, Job, Result>(input: ParallelInput<Data, Job>): Promise<Result[]> {
  const threads = Math.min(input.jobs.length, input.threads ?? availableParallelism())
  return threads > 1 && COMPILED ? inThreads<Data, Job, Result>(input, threads) : here<Data, Job, Result>(input)
}

async function here<Data, Job, Result>({ module, data, jobs, onProgress }: ParallelInput<Data, Job>): Promise<Result[]> {
  const { prepare } = (await import(module.href)) as JobModule<Data, Job, Result>
  const run = await prepare(data)
  const results: Result[] = []
  for (const job of jobs) {
    results.push(await run(job))
    onProgress?.(results.length, jobs.length)
    await new Promise(setImmediate) // a progress line and Ctrl-C get their turn
  }
  return results
}

async function inThreads<Data, Job, Result>(
  { module, data, jobs, onProgress }: ParallelInput<Data, Job>,
  threads: number,
): Promise<Result[]> {
  const results: Result[] = []
  const workers: Worker[] = []
  let next = 0
  let done = 0
  try {
    await new Promise<void>((resolve, reject) => {
      const give = (worker: Worker) => {
        if (next < jobs.length) worker.postMessage({ at: next, job: jobs[next++] }, [])
      }
      for (let t = 0; t < threads; t++) {
        const worker = new Worker(new URL('./parallel-thread.js', import.meta.url), { workerData: { module: module.href, data } })
        workers.push(worker)
        worker.on('error', reject)
        worker.on('message', (answer: Answer) => {
          if ('failure' in answer) return reject(errorOf(answer.failure))
          results[answer.at] = answer.result as Result
          onProgress?.(++done, jobs.length)
          if (done === jobs.length) return resolve()
          give(worker)
        })
        give(worker)
      }
    })
  } finally {
    await Promise.all(workers.map(worker => worker.terminate()))
  }
  return results
}

export function failureOf(error: unknown): Failure {
  if (!(error instanceof EldrError)) return { message: error instanceof Error ? (error.stack ?? error.message) : String(error) }
  const { cause: _, ...detail } = error.detail // may be of any kind, and not every kind travels
  return { message: error.message, code: error.code, detail }
}

function errorOf({ message, code, detail }: Failure): Error {
  return code === undefined ? new Error(message) : new EldrError(code, detail)
}
