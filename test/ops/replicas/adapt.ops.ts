/** Live recalibration on two replicas: a swap, its undo and the hold after it are the same on both. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { liveRows, type LiveRow } from '../../../src/adapt/traffic.ts'
import { createAdaptation } from '../../../src/cli/adaptation.ts'
import { writeArtifact } from '../../../src/fit/artifact-write.ts'
import { fitFile, shipped } from '../../data.ts'
import { eldrObject, type ReceivedRequest } from '../../fake-worker/index.ts'
import { type Replica, type Stage, startStage, until } from './gateways.ts'
import { type Store, startStore } from './store.ts'

const WORKERS = 4
const MODEL = { layers: 16, experts: 128, topK: 8 }
let folder: string
let artifact: string
let rows: LiveRow[]
let store: Store
let stage: Stage
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'eldr-replicas-'))
  artifact = join(folder, 'task.safetensors')
  await writeArtifact(
    artifact,
    (await fitFile(shipped('lab16-task.calibration'), { workers: WORKERS })).artifact,
  )
  rows = await liveRows(shipped('lab16-lang.evaluation'))
  store = await startStore()
})
afterAll(async () => {
  await store.close()
  rmSync(folder, { recursive: true, force: true })
})
beforeEach(async () => {
  await store.ask('FLUSHALL')
  const counts = ({ json }: ReceivedRequest) => {
    const row = rows[Number(json.user)]!.counts
    const tokens = row.subarray(0, MODEL.experts).reduce((a, b) => a + b, 0) / MODEL.topK
    return eldrObject({ ...MODEL, tokens }, row)
  }
  stage = await startStage(WORKERS, { counts, gapMs: 10 })
})
afterEach(() => stage.close())

const start = (name: string) =>
  stage.replica(
    store.url,
    { routing: { policy: 'eldr', artifact }, adapt: { mode: 'suggest', folder: join(folder, name) } },
    { createAdaptation },
  )
const adapt = (replica: Replica) => replica.get('/eldr/adapt')
const inForce = ({ gateway }: Replica) => gateway.control.view().artifact?.sha256

/** Sends requests of other traffic until there is a suggestion, which it takes. */
async function swapOn(replica: Replica): Promise<void> {
  const state = { next: 0, done: false }
  const send = async () => {
    while (!state.done) {
      const user = String(state.next++ % rows.length)
      await (await replica.post({ prompt: 'a', max_tokens: 6, stream: true, user })).text()
    }
  }
  const senders = Array.from({ length: 48 }, send)
  await until('a suggestion', async () => (state.done = (await adapt(replica)).suggestion), 90_000)
  await Promise.all(senders)
  expect((await replica.change('POST', '/eldr/adapt/swap')).status).toBe(200)
}

describe('live recalibration on two replicas', () => {
  it('undoes a swap on either of them, and then both wait', { timeout: 180_000 }, async () => {
    const [a, b] = [await start('a'), await start('b')]
    const first = inForce(a)
    await swapOn(a)
    const swapped = inForce(a)
    expect(swapped).not.toBe(first)
    await until('the swap on the other', () => inForce(b) === swapped)
    expect((await adapt(b)).swaps).toMatchObject([
      { sha256: swapped, parentSha256: first, state: 'in_force' },
    ])

    expect((await b.change('POST', '/eldr/adapt/undo')).status).toBe(200)
    await until('the first artifact on both', () => inForce(a) === first && inForce(b) === first)
    await until('the hold', async () => (await adapt(a)).state === 'held')
    for (const replica of [a, b])
      expect(await adapt(replica)).toMatchObject({ state: 'held', swaps: [{ state: 'undone' }] })

    // Other workers are no reason to begin again.
    expect((await a.change('DELETE', '/eldr/workers/d3')).status).toBe(200)
    await until('a refit', () => a.gateway.control.view().artifact?.clusters === WORKERS - 1)
    for (const replica of [a, b]) expect((await adapt(replica)).state).toBe('held')

    // A replica that starts later waits too; an operator who loads an artifact ends it on all.
    const c = await start('c')
    await until('the hold on a late one', async () => (await adapt(c)).state === 'held')
    expect((await c.change('POST', '/eldr/artifact', { path: artifact })).status).toBe(200)
    await until('the end of the hold', async () => {
      const views = await Promise.all([a, b, c].map(adapt))
      return views.every(({ state }) => state !== 'held')
    })
  })
})
