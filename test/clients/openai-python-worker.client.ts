/**
 * OpenAI's client for Python against `eldr worker`: openai_worker.py says what it saw, and here is what it
 * should have seen.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { killAll, startWorkerProcess, type WorkerProcess } from '../worker/processes.ts'
import { has, PYTHON, run, script } from './tools.ts'

describe.runIf(has('openai for Python', PYTHON, '-c', 'import openai'))(
  'the openai client for Python, at a worker',
  () => {
    let worker: WorkerProcess
    const seen = new Map<string, Record<string, unknown>>()
    beforeAll(async () => {
      worker = await startWorkerProcess('--speed', '4')
      const { code, out, err } = await run(PYTHON, [script('openai_worker.py'), worker.url])
      if (code !== 0) throw new Error(err)
      for (const line of out.trim().split('\n')) {
        const { case: name, ...rest } = JSON.parse(line) as Record<string, unknown>
        seen.set(name as string, rest)
      }
    }, 120_000)
    afterAll(killAll)

    it.each([
      ['whole', { tokens: 5, reason: 'length' }],
      ['stream', { tokens: 5 }],
      ['completion', { ids: 3, prompt: [1, 2, 3] }],
      ['request id', { id: 'mine-1', parsed: 'chatcmpl-mine-1' }],
      ['bad request', { kind: 'BadRequestError', type: 'BadRequestError', param: 'n', status: 400 }],
      ['too long', { kind: 'BadRequestError', param: 'input_tokens', status: 400 }],
      ['unknown model', { kind: 'NotFoundError', type: 'NotFoundError', param: 'model', status: 404 }],
      ['closed during a stream', { chunks: 3 }],
      ['several at once', { same: true }],
    ])('%s', (name, wanted) => {
      expect(seen.get(name)).toMatchObject(wanted)
    })

    it('gets the same text whole and as a stream, and leaves nothing behind', async () => {
      expect(seen.get('stream')!['text']).toBe(seen.get('whole')!['text'])
      expect(await worker.leftovers()).toEqual([])
    })
  },
)
