/** Turns of conversations in front of fake workers: which decode worker gets them, and which skip prefill. */
import { afterEach, describe, expect, it } from 'vitest'
import { readSamples } from '../../src/cluster/metrics-text.ts'
import { type Cluster, type ClusterOptions, startCluster } from './cluster.ts'
import { startProcessCluster } from './process-cluster.ts'
import { pushEngine } from './push-engine.ts'

type Message = { role: string; content: string }

let cluster: Pick<Cluster, 'url' | 'post' | 'prefills' | 'decodes' | 'idle' | 'stop'> & Partial<Cluster>
afterEach(async () => {
  await cluster.idle()
  await cluster.stop()
})

const ON = { enabled: true, skipPrefillBelowTokens: 64 }
const start = async (conversations: Record<string, unknown>, more: ClusterOptions = {}) => {
  cluster = await startCluster({
    decode: 4,
    ...more,
    config: { routing: { policy: 'jsq' }, conversations, ...more.config },
  })
}
const LONG = 'Tell me about the sea and its tides, at length. '.repeat(40)
const opening = (name: string): Message[] => [{ role: 'user', content: `${name}: ${LONG}` }]

/** Sends the turn, and returns the messages with its response. */
async function say(messages: readonly Message[]): Promise<Message[]> {
  const headers = { connection: 'close' } // so that each process of a gateway gets some
  const response = await cluster.post('/v1/chat/completions', { messages, max_tokens: 4 }, { headers })
  expect(response.status).toBe(200)
  const { choices } = (await response.json()) as { choices: { message: Message }[] }
  // The next turn may come to another process, which must not be faster than the end of this one.
  await cluster.idle()
  return [...messages, choices[0]!.message]
}
const next = (messages: readonly Message[], content = 'And then?') =>
  say([...messages, { role: 'user', content }])

/** Index of the decode worker that got this conversation last, by its first words. */
const decoderOf = (name: string) =>
  cluster.decodes.findIndex(({ requests }) =>
    requests.some(({ body }) => body.includes(`"${name}: `) && body === lastOf(name)),
  )
const lastOf = (name: string) =>
  cluster.decodes
    .flatMap(({ requests }) => requests.filter(({ body }) => body.includes(`"${name}: `)))
    .toSorted((a, b) => a.body.length - b.body.length)
    .at(-1)?.body
const prefills = () => cluster.prefills.reduce((sum, { counters }) => sum + counters.prefill, 0)
const alone = () => cluster.decodes.reduce((sum, { counters }) => sum + counters.noKv, 0)
async function steps(): Promise<Record<string, number>> {
  const text = await (await fetch(`${cluster.url}/metrics`)).text()
  const samples = readSamples(text, new Set(['eldr_conversation_turns_total']))
  return Object.fromEntries(samples.map(({ labels, value }) => [labels['outcome'], value]))
}

describe('the next turn of a conversation', () => {
  it('goes to the decode worker that has its KV cache', async () => {
    await start({ enabled: true })
    for (const name of ['ann', 'bob', 'cy', 'dee', 'eve']) {
      let talk = await say(opening(name))
      const first = decoderOf(name)
      for (let turn = 2; turn <= 4; turn++) {
        talk = await next(talk)
        expect([name, turn, decoderOf(name)]).toEqual([name, turn, first])
      }
    }
    expect(await steps()).toEqual({ kept: 15, alone: 0, moved: 0 })
    expect(alone()).toBe(0)
    expect(prefills()).toBe(20)
  })

  it('skips prefill if it adds little, and not if it adds much', async () => {
    await start(ON)
    let talk = await say(opening('ann'))
    expect(prefills()).toBe(1)
    talk = await next(talk)
    expect([prefills(), alone()]).toEqual([1, 1])
    talk = await next(talk, LONG)
    expect([prefills(), alone()]).toEqual([2, 1])
    await next(talk)
    expect(await steps()).toEqual({ kept: 1, alone: 2, moved: 0 })
  })

  it('is routed like any other request where conversations are off, by settings or by the engine', async () => {
    await start({ enabled: false })
    await next(await say(opening('ann')))
    expect(await steps()).toEqual({ kept: 0, alone: 0, moved: 0 })
    await cluster.stop()
    const protocol = { protocol: 'push' } as const
    await start(ON, { engine: pushEngine(), prefillOptions: protocol, decodeOptions: protocol })
    await next(await say(opening('ann')))
    expect(await steps()).toEqual({ kept: 0, alone: 0, moved: 0 })
    expect(prefills()).toBe(2)
  })

  it('is served elsewhere with a new prefill if its worker died, fails, or is drained', async () => {
    await start(ON)
    let talk = await say(opening('ann'))
    const first = decoderOf('ann')
    await cluster.decodes[first]!.refuse()
    talk = await next(talk)
    expect(decoderOf('ann')).not.toBe(first)
    expect(prefills()).toBe(2)
    const second = decoderOf('ann')
    cluster.decodes[second]!.failNext({ kind: 'status', status: 500 })
    talk = await next(talk)
    expect(decoderOf('ann')).not.toBe(second)
    const third = decoderOf('ann')
    const { registry } = cluster.gateway!.context
    const id = registry.views(performance.now()).find(({ spec }) => spec.url === cluster.decodes[third]!.url)!
      .spec.id
    registry.drain(id)
    await next(talk)
    expect(decoderOf('ann')).not.toBe(third)
    await cluster.decodes[first]!.accept()
  })

  it('is prefilled again after its worker restarted', async () => {
    await start(ON, { config: { health: { intervalMs: 50 } } })
    const talk = await say(opening('ann'))
    const worker = cluster.decodes[decoderOf('ann')]!
    const { restarts } = cluster.gateway!.context
    const { id } = cluster
      .gateway!.context.registry.views(performance.now())
      .find(({ spec }) => spec.url === worker.url)!.spec
    restarts.sawCounters(id, new Map([['vllm:prompt_tokens_total', 1e9]]))
    restarts.sawCounters(id, new Map([['vllm:prompt_tokens_total', 0]]))
    await next(talk)
    expect(prefills()).toBe(2)
    expect(await steps()).toEqual({ kept: 0, alone: 0, moved: 0 })
  })

  it('has its load released: nothing is in flight afterwards', async () => {
    await start(ON)
    await Promise.all(['ann', 'bob', 'cy'].map(async name => next(await next(await say(opening(name))))))
    await cluster.idle()
    expect(Object.values(cluster.leftovers!())).toEqual([0, 0, 0])
  })

  it('is recognised by all processes of a gateway, because the owner decides', async () => {
    cluster = await startProcessCluster({
      processes: 2,
      decode: 4,
      config: { routing: { policy: 'jsq' }, conversations: ON },
    })
    let talk = await say(opening('ann'))
    const first = decoderOf('ann')
    for (let turn = 2; turn <= 6; turn++) {
      talk = await next(talk, turn % 2 === 0 ? 'And then?' : LONG)
      expect([turn, decoderOf('ann')]).toEqual([turn, first])
    }
    expect(await steps()).toEqual({ kept: 2, alone: 3, moved: 0 })
    expect([prefills(), alone()]).toEqual([3, 3])
  })

  describe('that skips prefill on a worker without its KV cache', () => {
    let hasCache: boolean
    const decodeOptions = {
      cachedTokens: (_: unknown, prompt: number) => (hasCache ? prompt - 10 : 0),
    }
    const misses: [string, () => Promise<void>][] = [
      ['one process', () => start(ON, { decode: 1, decodeOptions })],
      [
        'several processes',
        async () => {
          const config = { routing: { policy: 'jsq' }, conversations: ON } as const
          cluster = await startProcessCluster({ processes: 2, decode: 1, config, decodeOptions })
        },
      ],
    ]

    it.each(misses)('is the last to do so for a while: %s', async (_, begin) => {
      hasCache = true
      await begin()
      const [ann, bob] = [await next(await say(opening('ann'))), await next(await say(opening('bob')))]
      expect(alone()).toBe(2)
      hasCache = false
      const again = await next(ann)
      expect(alone()).toBe(3)
      await next(await next(again))
      await next(bob)
      expect([prefills(), alone()]).toEqual([5, 3])
    })

    it('is noticed in a stream too, if the client asks for usage', async () => {
      hasCache = false
      await start(ON, { decode: 1, decodeOptions })
      const talk = [...(await say(opening('ann'))), { role: 'user', content: 'And then?' }]
      const stream = { stream: true, stream_options: { include_usage: true } }
      const response = await cluster.post('/v1/chat/completions', {
        messages: talk,
        max_tokens: 4,
        ...stream,
      })
      expect(await response.text()).toContain('"cached_tokens":0')
      await cluster.idle()
      expect(alone()).toBe(1)
      await next(talk)
      expect(alone()).toBe(1)
    })
  })
})
