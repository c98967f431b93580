// Entry point of the fake worker: tests use index.ts, which has types, and benchmarks main.mjs.
import { FakeWorker } from './fake-worker.mjs'

/**
 * A fake worker, listening.
 * @param {import('./types.ts').FakeWorkerOptions} [options]
 * @returns {Promise<import('./types.ts').FakeWorker>}
 */
export async function startFakeWorker(options = {}) {
  const worker = new FakeWorker(options)
  await worker.accept()
  return worker
}
