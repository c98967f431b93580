import { mkdirSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { failure } from '../trace-support.ts'
import { FakeKube } from './fake-kube.ts'
import { ask, kubeStage, pod } from './kube-stage.ts'
import { startDiscovering } from './support.ts'

const { on, putPrefill, putDecode, start } = kubeStage()

describe('a watch', () => {
  /** Replaces pod 1 by pod 2 and checks that the gateway follows. */
  async function stillFollows(): Promise<void> {
    const { until, states } = on.current!
    putDecode(pod(0), pod(2))
    await until(() => states()['decode-2'] === 'ready' && states()['decode-1'] === undefined)
    expect(states()).toEqual({ 'prefill-0': 'ready', 'decode-0': 'ready', 'decode-2': 'ready' })
  }
  const isWatch = (query: URLSearchParams) => query.get('watch') !== null
  const ofDecode = (query: URLSearchParams) => query.get('labelSelector') === 'app=vllm,role=decode'

  it('that ends continues from the last version', async () => {
    await start()
    putDecode(pod(0), pod(1), pod(2, { ready: false }))
    const { version } = on.kube
    await on.current!.until(() => on.current!.view('decode-1') !== undefined)
    const again = on.kube.asked(query => isWatch(query) && ofDecode(query))
    on.kube.endWatches()
    expect((await again).get('resourceVersion')).toBe(String(version))
    await stillFollows()
    expect(on.kube.requests.filter(({ query }) => !isWatch(query))).toHaveLength(2)
    expect(on.current!.warnings()).toEqual([])
  })

  it('continues from a bookmark', async () => {
    await start()
    on.kube.bookmark()
    const { version } = on.kube
    const again = on.kube.asked(query => isWatch(query) && ofDecode(query))
    on.kube.endWatches()
    expect((await again).get('resourceVersion')).toBe(String(version))
    await stillFollows()
  })

  it('that is cut within an event continues', async () => {
    await start()
    on.kube.cutWatches()
    await on.kube.watched(4)
    await stillFollows()
    expect(on.kube.requests.filter(({ query }) => !isWatch(query))).toHaveLength(2)
  })

  it.each(['status', 'event'] as const)(
    'whose version is gone (%s) starts again with a list',
    async goneAs => {
      await start()
      on.kube.goneAs = goneAs
      const list = on.kube.asked(query => !isWatch(query) && ofDecode(query))
      on.kube.compact()
      on.kube.endWatches()
      await list
      await stillFollows()
      expect(on.current!.warnings()).toEqual([])
    },
  )

  it('sees what changed while it was interrupted', async () => {
    const { until, states } = await start()
    on.kube.failWith = 500
    on.kube.endWatches()
    await until(() => on.current!.warnings().length > 0)
    putDecode(pod(2))
    on.kube.failWith = undefined
    await until(() => states()['decode-2'] === 'ready' && states()['decode-0'] === undefined)
    expect(states()).toEqual({ 'prefill-0': 'ready', 'decode-2': 'ready' })
  })

  it('handles events that are repeated, split, unknown or old', async () => {
    await start()
    on.kube.times = 3
    on.kube.pieceBytes = 7
    on.kube.send({ type: 'ADDED', object: { kind: 'Pod', metadata: { name: 'x', resourceVersion: '1' } } })
    on.kube.send({ type: 'WHATEVER', object: {} })
    on.kube.send({})
    await stillFollows()
    expect((await on.current!.get('/eldr/workers')).discovery[0].notes).toContain(
      'Pod x is not an EndpointSlice: skipped',
    )
  })

  it.each([
    '{"type":"ADDED","obj\n',
    'rubbish\n',
    '{"type":"ERROR","object":{"kind":"Status","code":500}}\n',
  ])('with unusable data starts again with a list: %j', async text => {
    await start()
    const list = on.kube.asked(query => !isWatch(query) && ofDecode(query))
    on.kube.sendText(text)
    await list
    await stillFollows()
    expect(on.current!.warnings().every(line => line.includes('the Kubernetes API'))).toBe(true)
  })

  it('that is silent for too long is restarted', async () => {
    await start([pod(0), pod(1)], { silentMs: 1_000 })
    on.kube.hushWatches()
    putDecode(pod(0), pod(2))
    await on.current!.until(() => on.current!.states()['decode-2'] === 'ready')
    expect(on.kube.opened).toBeGreaterThanOrEqual(3)
    expect(on.current!.warnings()).toEqual([])
  })
})

describe('a faulty API server', () => {
  it.each([
    [401, 'refused', 'rejects the token'],
    [403, 'refused', 'does not allow this service account'],
    [500, 'failed', 'returned status 500'],
    [404, 'failed', 'returned status 404'],
    [429, 'failed', 'returned status 429'],
  ])('that responds with %i keeps the workers, with one warning', async (status, reason, words) => {
    const { until, states, warnings, get, metric } = await start()
    on.kube.failWith = status
    on.kube.endWatches()
    await until(() => warnings().length > 0)
    for (let n = 0; n < 4; n++) await on.kube.asked(() => true)
    expect(warnings()).toEqual([expect.stringContaining(words)])
    expect(states()).toEqual({ 'prefill-0': 'ready', 'decode-0': 'ready', 'decode-1': 'ready' })
    expect(await get('/ready')).toMatchObject({ status: 'ready', discovery: [{ up: false, reason }] })
    expect((await get('/eldr/workers')).discovery[0].problem).toContain(words)
    expect(await metric('eldr_discovery_up')).toBe(0)
    expect((await ask(on.current!)).status).toBe(200)
    on.kube.failWith = undefined
    await until(() => on.current!.lines.some(({ msg }) => msg === 'discovery: recovered'))
    expect(await metric('eldr_discovery_up')).toBe(1)
  })

  it('gets the new token after the token file changed', async () => {
    const mount = join(on.folder, 'account')
    mkdirSync(mount, { recursive: true })
    const tokenFile = join(mount, 'token')
    writeFileSync(tokenFile, 'first\n')
    on.kube = await FakeKube.start()
    on.kube.token = 'first'
    putPrefill()
    putDecode(pod(0))
    on.current = await startDiscovering({
      kubernetes: {
        enabled: true,
        prefillSelector: ['role=prefill'],
        decodeSelector: ['role=decode'],
        namespace: 'llm',
        apiUrl: `http://127.0.0.1:${on.kube.port}`,
        tokenFile,
      },
    })
    const { until, states, warnings } = on.current
    await until(() => states()['decode-0'] === 'ready')
    await on.kube.watched(2)
    on.kube.token = 'second'
    on.kube.endWatches()
    await until(() => warnings().some(text => text.includes('rejects the token')))
    writeFileSync(`${tokenFile}.new`, 'second')
    renameSync(`${tokenFile}.new`, tokenFile)
    await until(() => on.current!.lines.some(({ msg }) => msg === 'discovery: recovered'))
    putDecode(pod(0), pod(1))
    await until(() => states()['decode-1'] === 'ready')
    writeFileSync(tokenFile, '')
    on.kube.endWatches()
    await until(() => warnings().some(text => text.includes('no valid token in')))
    expect(states()).toMatchObject({ 'decode-0': 'ready', 'decode-1': 'ready' })
  })

  it('that goes down and comes back is used again', async () => {
    const { until, states, warnings } = await start()
    const { port } = on.kube
    await on.kube.close()
    await until(() => warnings().some(text => text.includes('cannot be reached')))
    expect(states()).toEqual({ 'prefill-0': 'ready', 'decode-0': 'ready', 'decode-1': 'ready' })
    on.kube = await FakeKube.start(undefined, port)
    putPrefill()
    putDecode(pod(2))
    on.kube.compact() // a restarted server does not know the old versions
    await until(() => states()['decode-2'] === 'ready' && states()['decode-0'] === undefined)
  })

  it('without a slice for the labels keeps the workers', async () => {
    const { until, states, warnings, metric } = await start()
    on.kube.remove('decode-abc')
    await until(() => warnings().length > 0)
    expect(warnings()).toEqual([
      expect.stringContaining('no EndpointSlice has the labels app=vllm,role=decode'),
    ])
    expect(states()).toMatchObject({ 'decode-0': 'ready', 'decode-1': 'ready' })
    expect(await metric('eldr_discovery_up')).toBe(0)
    putDecode(pod(1))
    await until(() => states()['decode-0'] === undefined)
    expect(await metric('eldr_discovery_up')).toBe(1)
  })

  it('with an endless list keeps the workers, with one warning and pauses between attempts', async () => {
    const { until, states, warnings, get } = await start()
    on.kube.isEndless = true
    on.kube.compact()
    on.kube.endWatches()
    await until(() => warnings().length > 0)
    expect(warnings()).toEqual([
      expect.stringMatching(/more than 200 pages for one selector.*keeping the workers found before$/),
    ])
    expect(states()).toEqual({ 'prefill-0': 'ready', 'decode-0': 'ready', 'decode-1': 'ready' })
    expect(await get('/ready')).toMatchObject({
      status: 'ready',
      discovery: [{ up: false, reason: 'broken' }],
    })
    on.kube.isEndless = false
    await until(() => on.current!.lines.some(({ msg }) => msg === 'discovery: recovered'))
    putDecode(pod(0), pod(2))
    await until(() => states()['decode-2'] === 'ready')
  })

  it('must be configured outside of a cluster', async () => {
    const { code, message } = await failure('KUBERNETES_SERVICE_HOST', () =>
      startDiscovering({ kubernetes: { enabled: true, prefillSelector: ['a=b'], decodeSelector: ['a=c'] } }),
    )
    expect(code).toBe('ELDR_CONFIG_INVALID')
    expect(message).toContain('--service-discovery-api-url')
    on.kube = await FakeKube.start()
  })
})
