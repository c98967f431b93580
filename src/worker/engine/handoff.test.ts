/**
 * Prefill on one engine, decode on another: the hand-off must contain exactly what the decode worker needs.
 */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { temporaryFolder } from '../../../test/trace-support.ts'
import { engineOn, finished, range, requestOf, smallTrace, start } from '../../../test/worker-support.ts'
import type { KeptBlocks, KvPayload, RemoteKv, WorkerEngine } from '../types.ts'

const folder = temporaryFolder()
let trace = ''
let prefill: WorkerEngine
let decode: WorkerEngine
beforeAll(async () => {
  trace = await smallTrace(folder.path)
})
afterAll(() => folder.remove())
beforeEach(async () => {
  prefill = await engineOn(trace, { blocks: 8 })
  decode = await engineOn(trace, { blocks: 8, capture: false })
})
afterEach(() => Promise.all([prefill.close(), decode.close()]))

const prompt = range(0, 40)
const request = requestOf(prompt, { maxTokens: 12 })

async function leaseOf(ids: readonly number[] = prompt): Promise<KeptBlocks> {
  return (await finished(prefill, requestOf(ids, { maxTokens: 1, keepForDecode: true }))).end.lease!
}

const from = (lease: KeptBlocks, change = (payload: KvPayload) => payload): RemoteKv => ({
  tokens: lease.tokens,
  fetch: async (_, first) => {
    const payload = change(lease.export(first))
    lease.release()
    return payload
  },
})

const untouched = { running: 0, waiting: 0, fetching: 0, blocksFree: 8, blocksKept: 0, leases: 0 }

describe('a prefill leg', () => {
  it('ends with its counts and a lease on its blocks, which can be shared but not reallocated', async () => {
    const { end } = await finished(prefill, requestOf(prompt, { maxTokens: 1, keepForDecode: true }))
    expect(end).toMatchObject({
      reason: 'length',
      completionTokens: 1,
      lease: { tokens: 40 },
      counts: { tokens: 40, covered: 40, halfLife: 5 },
    })
    expect(end.lease!.blockIds).toHaveLength(3)
    expect(prefill.stats()).toMatchObject({ running: 0, blocksFree: 5, blocksKept: 3, leases: 1 })
    expect((await finished(prefill, requestOf(prompt))).end.cachedTokens).toBe(32)
    end.lease!.release()
    end.lease!.release()
    expect(prefill.stats()).toMatchObject(untouched)
    expect(() => end.lease!.export(0)).toThrow('were released')
  })

  it('waits for blocks held by leases, and starts when a lease is released', async () => {
    const lease = await leaseOf(range(0, 100))
    const waiting = start(prefill, requestOf(range(200, 230)))
    while (prefill.stats().waiting === 0) await new Promise(setImmediate)
    for (let i = 0; i < 5; i++) await new Promise(setImmediate)
    expect(prefill.stats()).toMatchObject({ running: 0, waiting: 1 })
    lease.release()
    expect((await waiting.ended).kind).toBe('finished')
  })

  it('that was aborted leaves no blocks behind', async () => {
    const leg = start(prefill, requestOf(prompt, { maxTokens: 1, keepForDecode: true }), (_, { handle }) =>
      handle.abort(),
    )
    expect(await leg.ended).toEqual({ kind: 'aborted' })
    expect(prefill.stats()).toMatchObject(untouched)
  })
})

describe('a decode leg', () => {
  it('generates the same text as a single worker', async () => {
    const alone = await finished(prefill, request)
    const { text, end } = await finished(decode, { ...request, remote: from(await leaseOf()) })
    expect(text).toBe(alone.text)
    expect(end).toMatchObject({ cachedTokens: 0, completionTokens: 12 })
    expect(decode.stats()).toMatchObject({
      ...untouched,
      promptTokens: 1,
      decodeSteps: 12,
      signatureBytes: 0,
    })
    expect(prefill.stats()).toMatchObject(untouched)
  })

  it('caches the blocks that it received, and fetches only the others', async () => {
    const sizes: number[] = []
    const counted = (payload: KvPayload) => {
      sizes.push(payload.bytes.length)
      return payload
    }
    await finished(decode, { ...request, remote: from(await leaseOf(), counted) })
    const again = await finished(decode, { ...request, remote: from(await leaseOf(), counted) })
    expect(again.end.cachedTokens).toBe(32)
    // a header of 16 bytes, then all 40 tokens or the last 8
    expect((sizes[0]! - 16) / (sizes[1]! - 16)).toBe(5)
    expect(again.text).toBe((await finished(prefill, request)).text)
  })

  it('computes the tokens that the hand-off does not cover', async () => {
    const { text } = await finished(decode, { ...request, remote: from(await leaseOf(range(0, 24))) })
    expect(text).toBe((await finished(prefill, request)).text)
    expect(decode.stats().promptTokens).toBe(16)
  })

  it('recomputes its tokens locally after a preemption', async () => {
    const legs = await Promise.all(
      [0, 1].map(async n => {
        const ids = range(100 * n, 100 * n + 40)
        return finished(
          decode,
          requestOf(ids, { maxTokens: 60, ignoreEos: true, remote: from(await leaseOf(ids)) }),
        )
      }),
    )
    expect(decode.stats().preemptions).toBeGreaterThan(0)
    for (const { request: leg, text } of legs)
      expect(text).toBe((await finished(prefill, { ...leg, remote: undefined })).text)
  })

  it('reports only tokens that it computed itself as covered', async () => {
    const both = await engineOn(trace)
    const { end } = await finished(both, { ...request, recordDecode: true, remote: from(await leaseOf()) })
    // the last token is computed again on this worker
    expect(end.counts).toMatchObject({ tokens: 40, covered: 1 })
    await both.close()
  })

  it.each([
    [
      'a bit is wrong',
      ({ bytes, tokens }: KvPayload) => ({
        tokens,
        bytes: bytes.map((byte, i) => (i === bytes.length - 9 ? byte ^ 4 : byte)),
      }),
    ],
    ['it is too short', ({ bytes, tokens }: KvPayload) => ({ tokens, bytes: bytes.subarray(0, -64) })],
    ['it has fewer tokens than expected', ({ bytes }: KvPayload) => ({ bytes, tokens: 39 })],
  ])('fails if %s', async (_, change) => {
    const end = await start(decode, { ...request, remote: from(await leaseOf(), change) }).ended
    expect(end).toMatchObject({
      kind: 'failed',
      status: 500,
      message: expect.stringContaining('KV') as string,
    })
    expect(decode.stats()).toMatchObject(untouched)
  })

  it('fails if the blocks hold another prompt', async () => {
    const other = await leaseOf(range(300, 340))
    const end = await start(decode, { ...request, remote: from(other) }).ended
    expect(end).toMatchObject({ kind: 'failed', status: 500 })
  })

  it('fails with the message of a failed fetch and is never recomputed instead', async () => {
    const remote = {
      tokens: 40,
      fetch: () => Promise.reject(new Error('The blocks are gone: their lease ended.')),
    }
    expect(await start(decode, { ...request, remote }).ended).toEqual({
      kind: 'failed',
      status: 500,
      message: 'The blocks are gone: their lease ended.',
    })
    expect(decode.stats()).toMatchObject({ ...untouched, steps: 0 })
  })

  it('does not delay other requests while it waits, and its fetch is stopped when it is aborted', async () => {
    const lease = await leaseOf()
    let stopped = false
    let arrive: (payload: KvPayload) => void = () => {}
    const fetch = (stop: AbortSignal) => {
      stop.addEventListener('abort', () => (stopped = true))
      return new Promise<KvPayload>(resolve => (arrive = resolve))
    }
    const leg = start(decode, { ...request, remote: { tokens: 40, fetch } })
    while (decode.stats().fetching === 0) await new Promise(setImmediate)
    expect(decode.stats()).toMatchObject({ running: 0, waiting: 1, blocksFree: 5 })
    await finished(decode, requestOf(range(70, 90)))
    leg.handle.abort()
    expect([stopped, decode.stats()]).toMatchObject([true, untouched])
    // Late KV is discarded: its blocks belong to others now.
    arrive(lease.export(0))
    const { text } = await finished(decode, requestOf(range(70, 90)))
    expect(text).toBe((await finished(prefill, requestOf(range(70, 90)))).text)
  })

  it.each([0, 41])('is refused with KV of %i tokens for a prompt of 40', async tokens => {
    const remote = { tokens, fetch: () => Promise.reject(new Error('not reached')) }
    expect(await start(decode, { ...request, remote }).ended).toMatchObject({ kind: 'failed', status: 400 })
  })
})
