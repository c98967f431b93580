// The door to the fake worker: tests come in through index.ts, which has types, and benchmarks through main.mjs.
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
