/**
 * Loaded into a worker process by a test: long timers fire when the test says so, and never because the
 * machine is busy. A message `{ skipMs }` moves `performance.now` ahead and runs the timers that are then
 * due. The response is the delays of the timers that are set. Timers shorter than LONG_MS, which pace the
 * steps of the engine, keep real time.
 */
import { isMainThread } from 'node:worker_threads'

const LONG_MS = 10_000
const real = {
  now: performance.now.bind(performance),
  setTimeout: globalThis.setTimeout,
  clearTimeout: globalThis.clearTimeout,
}
/** @type {Map<object, { delayMs: number, dueMs: number, run: () => void }>} */
const timers = new Map()
let aheadMs = 0

function skip(ms) {
  aheadMs += ms
  const nowMs = performance.now()
  for (const [handle, { dueMs, run }] of timers) {
    if (dueMs > nowMs) continue
    timers.delete(handle)
    run()
  }
}

if (isMainThread && process.send !== undefined) {
  performance.now = () => real.now() + aheadMs
  globalThis.setTimeout = (run, ms = 0, ...args) => {
    if (ms < LONG_MS) return real.setTimeout(run, ms, ...args)
    const handle = { ref: () => handle, unref: () => handle, hasRef: () => false }
    timers.set(handle, { delayMs: ms, dueMs: performance.now() + ms, run: () => run(...args) })
    return handle
  }
  globalThis.clearTimeout = handle => {
    if (!timers.delete(handle)) real.clearTimeout(handle)
  }
  process.on('message', ({ skipMs }) => {
    skip(skipMs)
    process.send([...timers.values()].map(({ delayMs }) => delayMs))
  })
  process.channel.unref()
}
