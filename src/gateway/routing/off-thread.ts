/** Runs the jobs of `fit-jobs.ts` beside the event loop, each in a thread of its own: they are few and far between. */
import { Worker } from 'node:worker_threads'
import { Refusal } from '../http/refusal.ts'
import { type JobInput, type JobName, type JobResult, JOBS } from './fit-jobs.ts'
import { type Letter, openLetter } from './thread-result.ts'

// Sources run as TypeScript in tests alone, and threads of Node 20 cannot: there a job runs in this thread.
const COMPILED = import.meta.url.endsWith('.js')

export class OffThread {
  readonly #threads = new Set<Worker>()
  #closed = false

  /** `give`: memory of the input that the job may have for itself. */
  async run<Name extends JobName>(
    name: Name,
    input: JobInput<Name>,
    give: readonly ArrayBuffer[] = [],
  ): Promise<JobResult<Name>> {
    if (this.#closed) throw new Refusal('ELDR_DRAINING')
    if (!COMPILED) return (JOBS[name] as (input: JobInput<Name>) => Promise<JobResult<Name>>)(input)
    const thread = new Worker(new URL('./fit-thread.js', import.meta.url), {
      workerData: { name, input },
      transferList: [...give],
    })
    this.#threads.add(thread)
    try {
      const letter = await new Promise<Letter>((resolve, reject) => {
        thread.once('message', resolve)
        thread.once('error', reject)
        thread.once('exit', () =>
          reject(
            this.#closed
              ? new Refusal('ELDR_DRAINING')
              : new Error(`the thread of ${name} ended without a result`),
          ),
        )
      })
      return openLetter(letter) as JobResult<Name>
    } finally {
      this.#threads.delete(thread)
      void thread.terminate()
    }
  }

  /** Jobs under way fail. */
  close(): void {
    this.#closed = true
    for (const thread of this.#threads) void thread.terminate()
  }
}
