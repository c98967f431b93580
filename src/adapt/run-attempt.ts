/** Runs an attempt in a thread, so that requests do not wait for it, and within a time limit. */
import { Worker } from 'node:worker_threads'
import { EldrError } from '../errors.ts'
import { attempt, type AttemptInput, type AttemptResult } from './attempt.ts'

// Only tests run the TypeScript sources, and threads of Node 20 cannot: there an attempt runs in this thread.
const COMPILED = import.meta.url.endsWith('.js')

/**
 * A refit of the default 1,024 requests takes seconds; the largest samples take minutes at the low priority
 * of the thread. After this long, traffic is no longer that of the sample, and a thread that hangs would keep
 * a core busy for ever.
 */
const LIMIT_MS = 600_000

export interface AttemptRunner {
  /** Rejects if `signal` is aborted. */
  run(input: AttemptInput, signal: AbortSignal): Promise<AttemptResult>
}

export interface RunnerOptions {
  readonly limitMs?: number
  /** Starts the thread. Undefined: in this thread. */
  readonly start?: (input: AttemptInput) => Worker
}

export function createAttemptRunner({
  limitMs = LIMIT_MS,
  start = COMPILED ? startThread : undefined,
}: RunnerOptions = {}): AttemptRunner {
  return {
    async run(input, signal) {
      signal.throwIfAborted()
      if (start === undefined) return attempt(input)
      const thread = start(input)
      let timer: NodeJS.Timeout | undefined
      try {
        return await new Promise<AttemptResult>((resolve, reject) => {
          thread.once('message', resolve)
          thread.once('error', reject)
          thread.once('exit', () => reject(new Error('the thread ended without a result')))
          signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true })
          const limit = `the end within ${limitMs / 1000} s`
          timer = setTimeout(
            () => reject(new EldrError('ELDR_ADAPT_TIMEOUT', { expected: limit })),
            limitMs,
          ).unref()
        })
      } finally {
        clearTimeout(timer)
        void thread.terminate()
      }
    },
  }
}

function startThread(input: AttemptInput): Worker {
  const { counts, plain, patterns } = input.sample
  return new Worker(new URL('./attempt-thread.js', import.meta.url), {
    workerData: input,
    transferList: [counts, plain, patterns].flatMap(array => array?.buffer ?? []),
  })
}
