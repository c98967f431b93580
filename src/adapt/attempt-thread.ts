/**
 * The thread of `run-attempt.ts`: runs one attempt and ends. An error ends it too, and reaches the caller.
 */
import { setPriority } from 'node:os'
import { parentPort, workerData } from 'node:worker_threads'
import { attempt, type AttemptInput } from './attempt.ts'

// On Linux each thread has its own priority, so requests run before an attempt if cores are few. On other
// systems this would change the priority of the whole process.
if (process.platform === 'linux') setPriority(10)

parentPort!.postMessage(attempt(workerData as AttemptInput), [])
