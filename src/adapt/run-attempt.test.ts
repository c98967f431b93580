import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import { describe, expect, it } from 'vitest'
import type { AttemptInput } from './attempt.ts'
import { createAttemptRunner } from './run-attempt.ts'

const INPUT = {} as AttemptInput
const never = new AbortController().signal

/** A runner of threads with this code. */
function runnerOf(code: string, limitMs?: number) {
  const threads: Worker[] = []
  const start = () => {
    const thread = new Worker(code, { eval: true })
    threads.push(thread)
    return thread
  }
  return { runner: createAttemptRunner({ start, limitMs }), threads }
}
const HANGS = 'setInterval(() => {}, 1000)'

describe('the thread of an attempt', () => {
  it('returns what it sends, and fails if it ends without', async () => {
    const { runner } = runnerOf(`require('node:worker_threads').parentPort.postMessage('result')`)
    expect(await runner.run(INPUT, never)).toBe('result')
    await expect(runnerOf('').runner.run(INPUT, never)).rejects.toThrow('without a result')
    await expect(runnerOf('throw new Error("bad")').runner.run(INPUT, never)).rejects.toThrow('bad')
  })

  it('is ended after the limit, with a coded error', async () => {
    const { runner, threads } = runnerOf(HANGS, 50)
    await expect(runner.run(INPUT, never)).rejects.toMatchObject({ code: 'ELDR_ADAPT_TIMEOUT' })
    await once(threads[0]!, 'exit')
  })

  it('is ended by the signal', async () => {
    const { runner, threads } = runnerOf(HANGS)
    const control = new AbortController()
    const run = runner.run(INPUT, control.signal)
    control.abort(new Error('undone'))
    await expect(run).rejects.toThrow('undone')
    await once(threads[0]!, 'exit')
    await expect(runner.run(INPUT, control.signal)).rejects.toThrow('undone')
    expect(threads.length).toBe(1)
  })
})
