/** A thread of `off-thread.ts`: does one job and ends. */
import { setPriority } from 'node:os'
import { parentPort, workerData } from 'node:worker_threads'
import { buffersIn, type Letter, letterOf } from './thread-result.ts'
import { type JobInput, type JobName, JOBS } from './fit-jobs.ts'

// On Linux a priority is a thread's own: where cores are few, requests come before a re-fit. Elsewhere it would be the whole process's.
if (process.platform === 'linux') setPriority(10)

const { name, input } = workerData as { readonly name: JobName; readonly input: unknown }

function send(letter: Letter): void {
  parentPort!.postMessage(letter, buffersIn(letter))
}

try {
  const job = JOBS[name] as (input: unknown) => Promise<unknown>
  send({ result: await job(input as JobInput<JobName>) })
} catch (error) {
  send(letterOf(error))
}
