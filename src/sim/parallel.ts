/**
 * Independent jobs on all cores. What a job needs (a trace, an artifact) is too large to send with each, so a
 * module prepares it once per thread: it exports `prepare(data)`, which returns the function that runs a job.
 * Results come in the order of the jobs.
 */
import { availableParallelism } from 'node:os'
import { Worker } from 'node:worker_threads'
import { EldrError, type ErrorCode, type ErrorDetail } from '../errors.ts'

/** Data, jobs and results are sent between threads: plain values and arrays; shared memory is shared. */
export interface JobModule<Data, Job, Result> {
  prepare(data: Data): Promise<(job: Job) => Result | Promise<Result>>
}

export interface PoolInput<Data> {
  /** Of a module that exports `prepare`. */
  readonly module: URL
  readonly data: Data
  /** Default: as many as there are cores; 1 runs in this thread. */
  readonly threads?: number
}

/** Threads that keep what they have prepared between lists of jobs. */
export interface Pool<Job, Result> {
  /** One list at a time. After a failure the pool cannot be used any more. */
  run(jobs: readonly Job[], onProgress?: (done: number, of: number) => void): Promise<Result[]>
  close(): Promise<void>
}

/** A thread's message. */
export type Answer = { readonly at: number; readonly result: unknown } | { readonly failure: Failure }

/** Errors lose their class between threads; this is what remains. */
export interface Failure {
  readonly message: string
  readonly code?: ErrorCode
  readonly detail?: ErrorDetail
}

// Sources run as TypeScript only in tests, and Node 20's threads cannot do that: then everything runs in this
// thread.
const COMPILED = import.meta.url.endsWith('.js')

export function openPool<Data, Job, Result>(input: PoolInput<Data>): Pool<Job, Result> {
  const threads = input.threads ?? availableParallelism()
  return threads > 1 && COMPILED ? inThreads(input, threads) : here(input)
}

function here<Data, Job, Result>({ module, data }: PoolInput<Data>): Pool<Job, Result> {
  let prepared: ReturnType<JobModule<Data, Job, Result>['prepare']> | undefined
  return {
    async run(jobs, onProgress) {
      prepared ??= ((await import(module.href)) as JobModule<Data, Job, Result>).prepare(data)
      const run = await prepared
      const results: Result[] = []
      for (const job of jobs) {
        results.push(await run(job))
        onProgress?.(results.length, jobs.length)
        await new Promise(setImmediate) // lets a progress line and Ctrl-C through
      }
      return results
    },
    close: async () => {},
  }
}

function inThreads<Data, Job, Result>({ module, data }: PoolInput<Data>, threads: number): Pool<Job, Result> {
  const workers: Worker[] = []
  /** Started when there is work for them, and no more than needed. */
  function workersFor(jobs: number): readonly Worker[] {
    while (workers.length < Math.min(threads, jobs))
      workers.push(
        new Worker(new URL('./parallel-thread.js', import.meta.url), {
          workerData: { module: module.href, data },
        }),
      )
    return workers.slice(0, jobs)
  }
  return {
    run(jobs, onProgress) {
      const results: Result[] = []
      let next = 0
      let done = 0
      if (jobs.length === 0) return Promise.resolve(results)
      return new Promise<Result[]>((resolve, reject) => {
        const used = workersFor(jobs.length)
        const give = (worker: Worker) => {
          if (next < jobs.length) worker.postMessage({ at: next, job: jobs[next++] }, [])
        }
        for (const worker of used) {
          worker.removeAllListeners('error').removeAllListeners('message')
          worker.on('error', reject)
          worker.on('message', (answer: Answer) => {
            if ('failure' in answer) return reject(errorOf(answer.failure))
            results[answer.at] = answer.result as Result
            done++ // not in the call below: without a listener its arguments are not computed
            onProgress?.(done, jobs.length)
            if (done === jobs.length) return resolve(results)
            give(worker)
          })
          give(worker)
        }
      })
    },
    close: async () => void (await Promise.all(workers.map(worker => worker.terminate()))),
  }
}

export function failureOf(error: unknown): Failure {
  if (!(error instanceof EldrError))
    return { message: error instanceof Error ? (error.stack ?? error.message) : String(error) }
  const { cause: _, ...detail } = error.detail // may be of any kind, and not every kind can be sent
  return { message: error.message, code: error.code, detail }
}

function errorOf({ message, code, detail }: Failure): Error {
  return code === undefined ? new Error(message) : new EldrError(code, detail)
}
