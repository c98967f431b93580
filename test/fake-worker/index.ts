/**
 * A fake vLLM worker for tests of everything that talks to one.
 * @example
 * const prefill = await startFakeWorker({ role: 'prefill', counts: { layers: 4, experts: 8, topK: 2 } })
 * const decode = await startFakeWorker({ role: 'decode', prefills: [prefill] })
 * decode.failNext({ kind: 'reset', after: 'tokens', tokens: 3 })
 */
export { eldrObject, makeCounts } from './counts.mjs'
export type * from './types.ts'
export { startFakeWorker } from './worker.mjs'
