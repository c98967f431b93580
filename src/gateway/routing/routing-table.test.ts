import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { smallArtifact } from '../../../test/gateway/admin-support.ts'
import { eldrObject, makeCounts } from '../../../test/fake-worker/index.ts'
import { temporaryFolder } from '../../../test/trace-support.ts'
import type { Artifact } from '../../fit/artifact.ts'
import { type HandoffExperts, shapeIn } from './read-experts.ts'
import { createRoutingTable, type RoutingTable, type TableOptions } from './routing-table.ts'

const SHAPE = { layers: 2, experts: 8, topK: 2 }
const TOKENS = 32
const folder = temporaryFolder()
let artifact: Artifact
beforeAll(async () => void (artifact = (await smallArtifact(folder.path, 2)).artifact))
afterAll(() => folder.remove())

const OPTIONS: TableOptions = { policy: 'eldr', tau: 0.1, workers: 2, minCovered: 0.5 }
function tableOf(options: Partial<TableOptions>): RoutingTable {
  const result = createRoutingTable({ ...OPTIONS, ...options })
  if (result.kind === 'missing') throw new Error(result.missing)
  return result.table
}
const ctx = { random: () => 0 }
const bytesOf = (value: object) => Buffer.from(JSON.stringify(value))

/** A hand-off of the plugin, and one with the same experts as an engine's list per token. */
function handoffs(variant: number): { counted: HandoffExperts; listed: HandoffExperts } {
  const counts = makeCounts({ ...SHAPE, tokens: TOKENS }, 1000 + variant)
  const ids = new Uint8Array(TOKENS * SHAPE.layers * SHAPE.topK)
  for (let layer = 0; layer < SHAPE.layers; layer++) {
    // Dealt out expert by expert: no expert has more than one choice per token, so no token gets one twice.
    let at = 0
    for (let e = 0; e < SHAPE.experts; e++)
      for (let n = 0; n < counts[layer * SHAPE.experts + e]!; n++, at++)
        ids[((at % TOKENS) * SHAPE.layers + layer) * SHAPE.topK + Math.floor(at / TOKENS)] = e
  }
  const header = `{'descr': '|u1', 'fortran_order': False, 'shape': (${TOKENS}, ${SHAPE.layers}, ${SHAPE.topK}), }`
  const head = Buffer.from(`\x93NUMPY\x01\x00\x00\x00${header.padEnd(117)}\n`, 'latin1')
  head.writeUInt16LE(head.length - 10, 8)
  const npy = Buffer.concat([head, ids]).toString('base64')
  return {
    counted: {
      counts: bytesOf(eldrObject({ ...SHAPE, tokens: TOKENS }, counts)),
      routedExperts: undefined,
      promptTokens: TOKENS,
    },
    listed: { counts: undefined, routedExperts: npy, promptTokens: TOKENS },
  }
}

describe('a decision', () => {
  it('has the cosines to all centroids under every policy that reads counts', () => {
    const candidates = [0, 1, 2].map(worker => ({ worker, inflight: 0 }))
    const [eldr, union, shortest] = (['eldr', 'union', 'jsq'] as const).map(policy => {
      const table = tableOf({ artifact, policy })
      return table.policy.pick(table.read('a', handoffs(1).counted).routable, candidates, ctx)
    })
    expect(union!.similarities).toEqual(eldr!.similarities)
    expect([...union!.similarities!].map(Number.isNaN)).toEqual([false, false, true])
    expect(shortest!.similarities).toBeUndefined()
  })
})

describe('a hand-off', () => {
  it('gives the same reading from the plugin’s counts and from the engine’s routed experts', () => {
    const table = tableOf({ artifact })
    for (let variant = 0; variant < 8; variant++) {
      const { counted, listed } = handoffs(variant)
      const [first, second] = [table.read('a', counted), table.read('a', listed)]
      expect(first.reject).toBeUndefined()
      expect(second).toEqual(first)
      expect(second.routable.signature).toBeDefined()
    }
  })

  it('with invalid counts does not fall back to routed experts, and one with an empty object does', () => {
    const table = tableOf({ artifact })
    const { listed } = handoffs(0)
    expect(table.read('a', { ...listed, counts: bytesOf({ v: 7 }) })).toEqual({
      routable: { id: 'a' },
      reject: 'wrong_version',
    })
    expect(table.read('a', { ...listed, counts: bytesOf({}) }).covered).toBe(1)
    expect(table.read('a', { ...listed, promptTokens: undefined }).reject).toBe('bad_value')
    expect(table.read('a', { ...listed, routedExperts: 'AAAA' }).reject).toBe('bad_value')
  })

  it('without experts is rejected, and no hand-off at all is not', () => {
    const table = tableOf({ artifact })
    expect(table.read('a', { counts: undefined, routedExperts: undefined, promptTokens: 3 })).toEqual({
      routable: { id: 'a' },
      reject: 'missing',
    })
    expect(table.read('a', undefined)).toEqual({ routable: { id: 'a' } })
  })
})

describe('a table', () => {
  it('is not created if its policy lacks something, and the result says what', () => {
    expect(createRoutingTable(OPTIONS)).toEqual({ kind: 'missing', missing: 'an artifact with centroids' })
    expect(createRoutingTable({ ...OPTIONS, policy: 'domain', artifact })).toEqual({
      kind: 'missing',
      missing: expect.stringContaining('domains'),
    })
  })

  it('of union needs no artifact: it routes by load until the shape of the model is known', () => {
    const waiting = tableOf({ policy: 'union' })
    expect([waiting.policy.name, waiting.shape]).toEqual(['jsq', undefined])
    const table = tableOf({ policy: 'union', shape: SHAPE })
    const { routable } = table.read('a', handoffs(0).counted)
    expect(table.policy.pick(routable, [{ worker: 1, inflight: 3 }], ctx)).toMatchObject({
      worker: 1,
      reason: 'least_cost',
    })
  })

  it('of union uses the given costs', () => {
    const candidates = [
      { worker: 0, inflight: 1 },
      { worker: 1, inflight: 0 },
    ]
    const pick = (cost: TableOptions['cost']) => {
      const table = tableOf({ policy: 'union', shape: SHAPE, cost })
      const [running, next] = ['running', 'next'].map(id => table.read(id, handoffs(0).counted).routable)
      table.policy.dispatched!(running!, 0)
      return table.policy.pick(next!, candidates, ctx).worker
    }
    // If only experts cost, it joins the request with the same experts; if they cost nothing, it goes to the
    // idle worker.
    expect(pick({ base: 1e6, perExpert: 1, perRequest: 0 })).toBe(0)
    expect(pick({ base: 1e6, perExpert: 0, perRequest: 1 })).toBe(1)
  })

  it('gives each worker the centroid of its cluster, and none to a worker without a cluster', () => {
    const table = tableOf({
      artifact,
      assignment: new Map([
        [0, 1],
        [4, 0],
      ]),
      workers: 5,
    })
    const plain = tableOf({ artifact })
    const { routable } = table.read('a', handoffs(3).counted)
    const at = (...workers: number[]) => workers.map(worker => ({ worker, inflight: 0 }))
    const [one, zero] = plain.policy.pick(routable, at(1, 0), ctx).similarities!
    expect([...table.policy.pick(routable, at(0, 2, 4), ctx).similarities!]).toEqual([one, NaN, zero])
    expect(table.policy.pick(routable, at(2), ctx).reason).toBe('no_centroid')
  })
})

describe('the shape of a model', () => {
  it('is taken from valid counts, and invalid counts are rejected with their reason', () => {
    const table = tableOf({ policy: 'union' })
    const { counts } = handoffs(0).counted
    const valid = JSON.parse(counts!.toString()) as object
    const read = (changes: object) => {
      const changed = bytesOf({ ...valid, ...changes })
      const handoff = { counts: changed, routedExperts: undefined, promptTokens: TOKENS }
      return [shapeIn(handoff.counts), table.read('a', handoff).reject]
    }
    expect(shapeIn(counts)).toEqual(SHAPE)
    expect(read({ v: 2 })).toEqual([undefined, 'wrong_version'])
    expect(read({ layers: 3 })).toEqual([undefined, 'bad_base64'])
    expect(read({ covered: 1 })).toEqual([undefined, 'too_little_covered'])
    expect(read({ experts: 1e9 })).toEqual([undefined, 'wrong_shape'])
    expect(table.read('a', handoffs(0).listed).reject).toBe('wrong_shape')
  })
})
