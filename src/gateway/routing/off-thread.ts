/** Runs each job of `fit-jobs.ts` in a new thread. Jobs are rare, so a pool of threads would not pay. */
import { Worker } from 'node:worker_threads'
import { Refusal } from '../http/refusal.ts'
import { type JobInput, type JobName, type JobResult, JOBS } from './fit-jobs.ts'
import { type ThreadResult, unwrapResult } from './thread-result.ts'

// Only tests run the TypeScript sources, and threads of Node 20 cannot: there a job runs in this thread.
const COMPILED = import.meta.url.endsWith('.js')

export class OffThread {
  readonly #threads = new Set<Worker>()
  #closed = false

  /** `transfer`: buffers of the input to transfer to the thread. */
  async run<Name extends JobName>(
    name: Name,
    input: JobInput<Name>,
    transfer: readonly ArrayBuffer[] = [],
  ): Promise<JobResult<Name>> {
    if (this.#closed) throw new Refusal('ELDR_DRAINING')
    if (!COMPILED) return (JOBS[name] as (input: JobInput<Name>) => Promise<JobResult<Name>>)(input)
    const thread = new Worker(new URL('./fit-thread.js', import.meta.url), {
      workerData: { name, input },
      transferList: [...transfer],
    })
    this.#threads.add(thread)
    try {
      const received = await new Promise<ThreadResult>((resolve, reject) => {
        thread.once('message', resolve)
        thread.once('error', reject)
        thread.once('exit', () =>
          reject(
            this.#closed
              ? new Refusal('ELDR_DRAINING')
              : new Error(`the ${name} thread ended without a result`),
          ),
        )
      })
      return unwrapResult(received) as JobResult<Name>
    } finally {
      this.#threads.delete(thread)
      void thread.terminate()
    }
  }

  /** Running jobs fail. */
  close(): void {
    this.#closed = true
    for (const thread of this.#threads) void thread.terminate()
  }
}
