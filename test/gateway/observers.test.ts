/** A listener from outside hears of everything that happens to a request, without a change to the flow. */
import { afterEach, describe, expect, it } from 'vitest'
import type { RequestListener, RequestObserver } from '../../src/gateway/observe/request-observer.ts'
import { type Cluster, startCluster } from './cluster.ts'

let cluster: Cluster
afterEach(() => cluster.stop())

/** Writes every event down, as a metric, a span attribute or a log field would use it. */
function recorder(): { readonly observer: RequestObserver; readonly heard: unknown[][] } {
  const heard: unknown[][] = []
  const note = (...event: unknown[]) => void heard.push(event)
  const listener: RequestListener = {
    admitted: ({ queued }) => note('admitted', queued),
    read: ({ stream }, parts) => note('read', stream, parts),
    promptCounted: tokens => note('promptCounted', tokens),
    decided: ({ placement }) => note('decided', placement?.policy, placement?.worker.id),
    attemptStarted: ({ leg, number, worker }) => note('attemptStarted', leg, number, worker.id),
    firstByte: ({ leg }) => note('firstByte', leg),
    tokens: ({ leg }, count) => note('tokens', leg, count),
    attemptEnded: ({ leg, tokens }, end) => note('attemptEnded', leg, end.kind, tokens),
    retried: (leg, cause) => note('retried', leg, cause),
    handoffUnused: why => note('handoffUnused', why),
    ended: (outcome, code) => note('ended', outcome, code),
  }
  return { observer: { observe: () => listener }, heard }
}

const kinds = (heard: readonly unknown[][]) => heard.map(([kind]) => kind)

describe('a listener that was added from outside', () => {
  it('gets the events of a stream from admission to its end, in order', async () => {
    const { observer, heard } = recorder()
    cluster = await startCluster({ prefill: 1, decode: 1, observers: [observer] })
    const body = { messages: [{ role: 'user', content: 'a' }], max_tokens: 4, stream: true }
    await (await cluster.post('/v1/chat/completions', body)).text()
    await cluster.idle()
    const [prefill, decode] = [cluster.prefills[0]!, cluster.decodes[0]!].map(({ url }) => new URL(url).host)
    expect(kinds(heard).filter(kind => kind !== 'tokens')).toEqual([
      'admitted',
      'read',
      'attemptStarted',
      'attemptEnded',
      'promptCounted',
      'decided',
      'attemptStarted',
      'firstByte',
      'attemptEnded',
      'ended',
    ])
    expect(heard).toContainEqual(['read', true, 1])
    expect(heard).toContainEqual(['attemptStarted', 'prefill', 1, prefill])
    expect(heard).toContainEqual(['attemptEnded', 'prefill', 'handed_off', 0])
    expect(heard).toContainEqual(['decided', 'union', decode])
    const events = heard
      .filter(([kind]) => kind === 'tokens')
      .reduce((sum, [, , count]) => sum + Number(count), 0)
    // A chat stream opens with an event that has no token.
    expect(events).toBe(5)
    expect(heard).toContainEqual(['attemptEnded', 'decode', 'served', events])
    expect(heard.at(-1)).toEqual(['ended', 'ok', undefined])
  })

  it('gets failed attempts, retries and the error that the client got', async () => {
    const { observer, heard } = recorder()
    cluster = await startCluster({ prefill: 1, decode: 2, observers: [observer] })
    for (const worker of cluster.decodes) worker.fail({ kind: 'status', status: 503 })
    const response = await cluster.post('/v1/completions', { prompt: 'a', max_tokens: 4 })
    expect(response.status).toBe(502)
    await cluster.idle()
    expect(heard.filter(([kind]) => kind === 'retried')).toEqual([['retried', 'decode', 'status']])
    expect(heard.filter(([kind, leg]) => kind === 'attemptEnded' && leg === 'decode')).toEqual([
      ['attemptEnded', 'decode', 'failed', 0],
      ['attemptEnded', 'decode', 'failed', 0],
    ])
    expect(heard.at(-1)).toEqual(['ended', 'failed', 'ELDR_DECODE_FAILED'])
  })

  it('gets only the end of requests that never reach a worker', async () => {
    const { observer, heard } = recorder()
    cluster = await startCluster({ prefill: 1, decode: 1, observers: [observer] })
    await cluster.post('/v1/embeddings', {})
    expect(heard).toEqual([['ended', 'refused', 'ELDR_NOT_GENERATION']])
  })

  it('cannot harm a request by throwing', async () => {
    const broken = () => {
      throw new Error('a broken listener')
    }
    const events = [
      'admitted',
      'read',
      'promptCounted',
      'decided',
      'attemptStarted',
      'firstByte',
      'tokens',
      'attemptEnded',
      'ended',
    ]
    const listener = Object.fromEntries(events.map(name => [name, broken])) as RequestListener
    const { observer, heard } = recorder()
    cluster = await startCluster({
      prefill: 1,
      decode: 1,
      observers: [{ observe: broken }, { observe: () => listener }, observer],
    })
    for (const body of [
      { prompt: 'a', max_tokens: 4, stream: true },
      { prompt: 'a', max_tokens: 1 },
    ]) {
      const response = await cluster.post('/v1/completions', body)
      expect([response.status, (await response.text()).length > 0]).toEqual([200, true])
    }
    await cluster.idle()
    expect(heard.filter(([kind]) => kind === 'ended')).toEqual([
      ['ended', 'ok', undefined],
      ['ended', 'ok', undefined],
    ])
  })
})
