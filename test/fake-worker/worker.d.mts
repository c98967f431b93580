import type { FakeWorker, FakeWorkerOptions } from './types.ts'

/** A fake vLLM worker, listening. */
export function startFakeWorker(options?: FakeWorkerOptions): Promise<FakeWorker>
