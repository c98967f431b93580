/** OpenAI's client for Python: openai_client.py says what it saw, and here is what it should have seen. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Cluster, startCluster } from '../gateway/cluster.ts'
import { has, PYTHON, run, script } from './tools.ts'

describe.runIf(has('openai for Python', PYTHON, '-c', 'import openai'))(
  'the openai client for Python',
  () => {
    let cluster: Cluster
    const seen = new Map<string, Record<string, unknown>>()
    beforeAll(async () => {
      cluster = await startCluster({
        decodeOptions: { gapMs: 2 },
        config: { server: { apiKeys: ['right'] } },
      })
      const { code, out, err } = await run(PYTHON, [script('openai_client.py'), cluster.url, 'right'])
      if (code !== 0) throw new Error(err)
      for (const line of out.trim().split('\n')) {
        const { case: name, ...rest } = JSON.parse(line) as Record<string, unknown>
        seen.set(name as string, rest)
      }
    }, 120_000)
    afterAll(() => cluster.stop())

    it.each([
      ['whole', { tokens: 5, reason: 'length' }],
      ['stream', { tokens: 5 }],
      ['several', { indices: [0, 1, 2, 3], tokens: 12 }],
      ['request id', { id: 'mine-1', parsed: 'chatcmpl-mine-1' }],
      ['models', { ids: ['fake'] }],
      ['wrong key', { kind: 'AuthenticationError', code: 'ELDR_UNAUTHORIZED', status: 401 }],
      ['bad request', { kind: 'BadRequestError', code: 'ELDR_BAD_REQUEST', status: 400 }],
      ['unknown model', { kind: 'NotFoundError', status: 404 }],
      ['not served', { kind: 'NotFoundError', code: 'ELDR_NOT_GENERATION', status: 404 }],
      ['closed during a stream', { chunks: 3 }],
      ['cancelled', { tasks: 20 }],
    ])('%s', (name, wanted) => {
      expect(seen.get(name)).toMatchObject(wanted)
    })

    it('gets the same text whole and as a stream', () => {
      expect(seen.get('stream')!['text']).toBe(seen.get('whole')!['text'])
    })

    it('leaves nothing behind', async () => {
      await cluster.idle()
      expect(cluster.leftovers()).toEqual({ inflight: 0, tokens: 0, active: 0 })
    })
  },
)
