/** Live recalibration through the gateway: requests of another kind, what it says of them, swap and undo. */
import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { liveRows, type LiveRow } from '../../src/adapt/traffic.ts'
import { createAdaptation } from '../../src/cli/adaptation.ts'
import { writeArtifact } from '../../src/fit/artifact-write.ts'
import { encodeDecoded } from '../../src/wire/decoded-requests.ts'
import { eldrObject, type ReceivedRequest } from '../fake-worker/index.ts'
import { fitFile, shipped } from '../data.ts'
import { temporaryFolder } from '../trace-support.ts'
import { call, errorOf, follow } from './admin-support.ts'
import { type Cluster, type ClusterOptions, startCluster } from './cluster.ts'
import { eventually } from './watching.ts'

const WORKERS = 4
const SHAPE = { layers: 16, experts: 128, topK: 8 }
const folder = temporaryFolder()
const artifact = join(folder.path, 'task.safetensors')
let rows: Readonly<Record<string, LiveRow[]>>
beforeAll(async () => {
  const fitted = await fitFile(shipped('lab16-task.calibration'), { workers: WORKERS })
  await writeArtifact(artifact, fitted.artifact)
  rows = {
    task: await liveRows(shipped('lab16-task.evaluation')),
    lang: await liveRows(shipped('lab16-lang.evaluation')),
  }
})
afterAll(() => folder.remove())

let cluster: Cluster
afterEach(() => cluster.stop())

/** The field `user` names the traffic and the row whose counts the hand-off has. */
function countsOf({ json }: ReceivedRequest): unknown {
  const [traffic, row] = String(json.user).split(' ')
  const { counts } = rows[traffic!]![Number(row)]!
  const tokens = counts.subarray(0, SHAPE.experts).reduce((a, b) => a + b, 0) / SHAPE.topK
  return eldrObject({ ...SHAPE, tokens }, counts)
}

const start = async (mode: 'suggest' | 'on', more: ClusterOptions = {}) =>
  void (cluster = await startCluster({
    decode: WORKERS,
    prefillOptions: { counts: countsOf },
    decodeOptions: { gapMs: 10 },
    createAdaptation,
    config: {
      routing: { policy: 'eldr', artifact },
      adapt: { mode, folder: join(folder.path, mode), ...more.config?.adapt },
    },
    ...more,
  }))

let next = 0
/** Sends requests of one kind, 48 at a time, until something holds. */
async function sendUntil(traffic: string, holds: () => Promise<boolean>): Promise<void> {
  const state = { done: false }
  const sender = async () => {
    while (!state.done) {
      const row = next++ % rows[traffic]!.length
      const response = await cluster.post('/v1/completions', {
        prompt: 'a',
        max_tokens: 6,
        stream: true,
        user: `${traffic} ${row}`,
      })
      expect(response.status).toBe(200)
      await response.text()
    }
  }
  const senders = Array.from({ length: 48 }, sender)
  await eventually(async () => (state.done = await holds()), 'what the test waits for')
  await Promise.all(senders)
}

const view = async () => (await call(cluster, 'GET', '/eldr/adapt')).json
const routing = async () => (await call(cluster, 'GET', '/eldr/config')).json.routing

describe('live recalibration', () => {
  it('is off in a gateway that was started without it', async () => {
    cluster = await startCluster()
    expect(await view()).toEqual({ mode: 'off', state: 'off', suggestion: false, swaps: [] })
    for (const path of ['/eldr/adapt/swap', '/eldr/adapt/undo'])
      expect(errorOf(await call(cluster, 'POST', path))).toBe('409 ELDR_ADAPT_REFUSED')
    expect(await cluster.gateway.context.metrics.text()).not.toMatch(/^eldr_adapt_rank/m)
  })

  it(
    'suggests a refit for other traffic; swap and undo are one call each',
    { timeout: 120_000 },
    async () => {
      await start('suggest')
      const before = await routing()
      expect(await view()).toMatchObject({ mode: 'suggest', state: 'steady', sample: { requests: 0 } })
      expect(errorOf(await call(cluster, 'POST', '/eldr/adapt/swap'))).toBe('409 ELDR_ADAPT_REFUSED')
      // Long enough to know the usual load.
      await sendUntil('task', async () => (await view()).sample.requests === 1_024)
      const events = await follow(cluster)
      await sendUntil('lang', async () => (await view()).suggestion)
      const { data: drift } = await events.find(
        ({ event, data }) => event === 'adapt' && data.kind === 'drift',
      )
      // The mean follows about 200 requests: after the 150 of an alarm it still has a part of the former 0.5.
      expect(drift.meanRank).toBeLessThan(0.35)
      const suggested = await view()
      expect(suggested).toMatchObject({
        state: 'drifting',
        last: { verdict: 'suggest', judgedBy: 'predicted' },
      })
      expect(suggested.drift.history.length).toBeGreaterThan(0)
      expect(await routing()).toEqual(before)

      const swapped = await call(cluster, 'POST', '/eldr/adapt/swap')
      expect(swapped).toMatchObject({
        status: 200,
        json: { suggestion: false, swaps: [{ state: 'in_force' }] },
      })
      await events.find(({ event, data }) => event === 'adapt' && data.kind === 'swapped')
      const [swap] = swapped.json.swaps
      expect((await routing()).artifact).toMatchObject({ sha256: swap.sha256, file: swap.file })
      expect(
        createHash('sha256')
          .update(await readFile(swap.file))
          .digest('hex'),
      ).toBe(swap.sha256)
      expect(swap.parentSha256).toBe(before.artifact.sha256)
      expect((await readdir(join(folder.path, 'suggest'))).length).toBe(2)

      const undone = await call(cluster, 'POST', '/eldr/adapt/undo')
      expect(undone).toMatchObject({ status: 200, json: { state: 'held', swaps: [{ state: 'undone' }] } })
      expect(await routing()).toEqual(before)
      events.leave()
      const metrics = await cluster.gateway.context.metrics.text()
      for (const event of ['drift', 'judged', 'swapped', 'undone'])
        expect(metrics).toMatch(new RegExp(`eldr_adapt_events_total\\{event="${event}"\\} [1-9]`))
      expect(metrics).toMatch(/eldr_adapt_predicted_gain 0\.\d/)
      await cluster.idle()
    },
  )

  it('swaps by itself in mode on, and loses no request', { timeout: 120_000 }, async () => {
    await start('on')
    const { sha256 } = (await routing()).artifact
    await sendUntil('lang', async () => (await routing()).artifact.sha256 !== sha256)
    const { swaps } = await view()
    expect(swaps[0]).toMatchObject({ state: 'in_force', parentSha256: sha256 })
    await cluster.idle()
  })

  it('learns the decode counts that workers report, and leaves those alone that do not', async () => {
    const asked: string[] = []
    const reports = [...rows['task']!.keys()].slice(0, 3).map(row => ({
      id: `r${row}`,
      steps: 255,
      counts: Uint16Array.from(rows['task']![row]!.pattern),
    }))
    const engine = createServer(({ url = '' }, response) => {
      if (url.startsWith('/eldr/decoded')) asked.push(url)
      response.end(
        url.startsWith('/eldr/decoded')
          ? JSON.stringify({ ...SHAPE, last: 3, requests: reports.map(encodeDecoded) })
          : '',
      )
    })
    await new Promise<void>(resolve => engine.listen(0, '127.0.0.1', resolve))
    const url = `http://127.0.0.1:${(engine.address() as AddressInfo).port}`
    await start('suggest')
    try {
      for (const { id } of reports) {
        const headers = { 'x-request-id': id }
        const body = { prompt: 'a', max_tokens: 2, user: `task ${id.slice(1)}` }
        await (await cluster.post('/v1/completions', body, { headers })).text()
      }
      expect((await call(cluster, 'POST', '/eldr/workers', { url, role: 'decode' })).status).toBe(201)
      await eventually(async () => (await view()).sample.reported === 3, 'reported counts')
      await eventually(() => asked.length > 1, 'a second question')
      expect(asked[0]).toBe('/eldr/decoded?after=0')
      expect(asked[1]).toBe('/eldr/decoded?after=3')
      for (const { requests } of cluster.decodes)
        expect(requests.filter(({ path }) => path.startsWith('/eldr/decoded')).length).toBeLessThanOrEqual(1)
    } finally {
      engine.close()
      engine.closeAllConnections()
    }
  })
})
