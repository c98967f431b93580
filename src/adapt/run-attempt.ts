/** Runs an attempt in a thread, so that requests do not wait for it. One at a time. */
import { Worker } from 'node:worker_threads'
import { attempt, type AttemptInput, type AttemptResult } from './attempt.ts'

// Only tests run the TypeScript sources, and threads of Node 20 cannot: there an attempt runs in this thread.
const COMPILED = import.meta.url.endsWith('.js')

export interface AttemptRunner {
  run(input: AttemptInput): Promise<AttemptResult>
  /** A running attempt fails. */
  close(): void
}

export function createAttemptRunner(): AttemptRunner {
  let thread: Worker | undefined
  return {
    async run(input) {
      if (!COMPILED) return attempt(input)
      const { counts, plain, patterns } = input.sample
      const current = (thread = new Worker(new URL('./attempt-thread.js', import.meta.url), {
        workerData: input,
        transferList: [counts, plain, patterns].flatMap(array => array?.buffer ?? []),
      }))
      try {
        return await new Promise<AttemptResult>((resolve, reject) => {
          current.once('message', resolve)
          current.once('error', reject)
          current.once('exit', () => reject(new Error('the thread ended without a result')))
        })
      } finally {
        void current.terminate()
      }
    },
    close: () => void thread?.terminate(),
  }
}
