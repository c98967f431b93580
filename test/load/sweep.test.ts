/** A sweep on a gateway with fake workers: live run and simulator get the same requests at the same times. */
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { attachCluster } from '../../src/load/gateway-cluster.ts'
import { readTraceRows, type TraceRows } from '../../src/load/synthetic-sources.ts'
import { runLive, sharedWorkload, sweepRow } from '../../src/load/sweep.ts'
import { sweepTables } from '../../src/load/sweep-tables.ts'
import { createRandom } from '../../src/math/random.ts'
import { terminalOn } from '../../src/report/terminal.ts'
import { RequestPool } from '../../src/sim/requests.ts'
import { arrivalsAt, prepare } from '../../src/sim/study.ts'
import { createWorkload } from '../../src/sim/workload.ts'
import { type Cluster, startCluster } from '../gateway/cluster.ts'
import { writeSyntheticTrace } from '../synthetic-traces.ts'
import { temporaryFolder } from '../trace-support.ts'

const folder = temporaryFolder()
const trace = join(folder.path, 'trace.safetensors')
const [RATE, REQUESTS, SEED] = [100, 60, 3]
let cluster: Cluster
let rows: TraceRows
beforeAll(async () => {
  await writeSyntheticTrace(trace, { layers: 2, experts: 8, topK: 2, domains: 2, preference: 4 }, 40, 1)
  rows = await readTraceRows(trace)
  cluster = await startCluster({
    prefill: 2,
    decode: 2,
    decodeOptions: { gapMs: 1 },
    config: { server: { adminToken: 'right' } },
  })
})
afterAll(async () => {
  await cluster.stop()
  folder.remove()
})

const shared = () => sharedWorkload(rows, 'poisson', RATE, REQUESTS, SEED)
/** Requests at the two decode workers, in no particular order. */
const legs = () =>
  cluster.decodes
    .flatMap(({ requests }) => requests.filter(({ isGeneration }) => isGeneration))
    .map(({ json }) => json as { eldr_row: number; max_tokens: number; prompt: number[] })
const access = () => ({ url: cluster.url, adminToken: 'right' })

describe('sharedWorkload', () => {
  it('equals what the simulator draws from the same seed', () => {
    const replay = {
      rows: 40,
      steps: Int32Array.from(rows.decodeSteps),
      promptTokens: Int32Array.from(rows.promptTokens),
    }
    const workload = createWorkload({ arrivals: arrivalsAt('poisson', RATE) }, replay, 0, createRandom(SEED))
    const pool = new RequestPool()
    const slot = pool.take()
    const { timesUs, rowList, traceRows } = shared()
    for (let i = 0; i < REQUESTS; i++) {
      expect(timesUs[i]).toBe(workload.nextArrivalUs())
      workload.assign(pool, slot)
      expect(rowList[i]).toBe(pool.row[slot])
      workload.release(pool.row[slot]!)
    }
    expect([...traceRows]).toEqual([...rowList]) // every request of this trace has decode steps
  })

  it('numbers rows as the trace does if some requests have no decode steps', () => {
    const some = { file: 'x', promptTokens: [5, 5, 5, 5], decodeSteps: [0, 4, 0, 4] }
    const { rowList, traceRows } = sharedWorkload(some, 'poisson', RATE, 8, SEED)
    expect(new Set(rowList)).toEqual(new Set([0, 1]))
    expect([...traceRows]).toEqual(Array.from(rowList, row => [1, 3][row]))
  })
})

describe('sweep', () => {
  it('finds the workers of a gateway, and needs its token', async () => {
    expect(await attachCluster(access())).toMatchObject({ topology: '2P2D', artifactSha256: undefined })
    await expect(attachCluster({ url: cluster.url, adminToken: 'wrong' })).rejects.toThrow(
      /401.*--admin-token/,
    )
  })

  it('sends each cell’s rows at the planned times under its policy, and counts the requests that the simulator measures', async () => {
    const attached = await attachCluster(access())
    const workload = shared()
    const settings = {
      rows,
      api: 'completions',
      form: 'ids',
      model: 'fake',
      seed: SEED,
      timeoutMs: 20_000,
    } as const
    const simulate = await prepare({
      trace,
      profile: 'h200-first',
      topology: '2P2D',
      requests: REQUESTS,
      arrivals: 'poisson',
      rows: 'passes',
      rowList: workload.rowList,
    })
    const done = []
    for (const policy of ['round_robin', 'jsq']) {
      const before = new Set(legs())
      const { figures, cachesCleared } = await runLive(attached, { policy, rate: RATE }, workload, settings)
      expect(cachesCleared).toBe(false) // fake workers do not have this route
      const config = await fetch(`${cluster.url}/eldr/config`, { headers: { authorization: 'Bearer right' } })
      expect(await config.json()).toMatchObject({ routing: { policy } })
      const simulated = await simulate({ variant: policy, rate: RATE, seed: SEED })
      expect(figures.requests).toEqual({
        sent: REQUESTS,
        counted: simulated.requests,
        ok: simulated.requests,
        failed: 0,
      })
      const sent = legs().filter(leg => !before.has(leg))
      expect(sent).toHaveLength(REQUESTS)
      done.push({
        rows: sent.map(({ eldr_row }) => eldr_row).toSorted((a, b) => a - b),
        row: sweepRow({ policy, rate: RATE }, figures, simulated),
      })
      for (const { eldr_row: row, max_tokens, prompt } of sent)
        expect([max_tokens, prompt.length]).toEqual([rows.decodeSteps[row]! + 1, rows.promptTokens[row]])
    }
    expect(done[0]!.rows).toEqual([...workload.traceRows].toSorted((a, b) => a - b))
    const table = sweepTables(
      done.map(({ row }) => row),
      ['a note'],
      terminalOn(process.stdout, { NO_COLOR: '1', TERM: 'dumb' }),
    )
    expect(table).toMatch(
      /100 requests per second[^]*round_robin[^]*jsq[^]*within 5 % of the simulator’s: \d of 2[^]*a note/,
    )
    await attached.stop()
  })
})
