/** A thread of `parallel.ts`: prepares once, then runs the jobs it is sent, one after the other. */
import { parentPort, workerData } from 'node:worker_threads'
import { type Answer, failureOf, type JobModule } from './parallel.ts'

const { module, data } = workerData as { readonly module: string; readonly data: unknown }
const port = parentPort!

function answer(message: Answer): void {
  port.postMessage(message, [])
}

const prepared = import(module).then((loaded: JobModule<unknown, unknown, unknown>) => loaded.prepare(data))

port.on('message', async ({ at, job }: { readonly at: number; readonly job: unknown }) => {
  try {
    const run = await prepared
    answer({ at, result: await run(job) })
  } catch (error) {
    answer({ failure: failureOf(error) })
  }
})
