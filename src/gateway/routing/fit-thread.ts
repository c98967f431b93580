/** A thread of `off-thread.ts`: runs one job and ends. */
import { setPriority } from 'node:os'
import { parentPort, workerData } from 'node:worker_threads'
import { failureResult, type ThreadResult, transferableBuffers } from './thread-result.ts'
import { type JobInput, type JobName, JOBS } from './fit-jobs.ts'

// On Linux each thread has its own priority, so requests run before a refit if cores are few. On other
// systems this would change the priority of the whole process.
if (process.platform === 'linux') setPriority(10)

const { name, input } = workerData as { readonly name: JobName; readonly input: unknown }

function send(result: ThreadResult): void {
  parentPort!.postMessage(result, transferableBuffers(result))
}

try {
  const job = JOBS[name] as (input: unknown) => Promise<unknown>
  send({ result: await job(input as JobInput<JobName>) })
} catch (error) {
  send(failureResult(error))
}
