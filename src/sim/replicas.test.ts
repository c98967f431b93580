import { describe, expect, it } from 'vitest'
import { loadProfile } from '../cost/profile-file.ts'
import { createRandom } from '../math/random.ts'
import { createDecodePolicy } from '../policy/create-policy.ts'
import type {
  Candidate,
  DecodePolicy,
  PolicyName,
  PolicyOptions,
  RoutableRequest,
} from '../policy/decode-policy.ts'
import { type Replicas, replicaDispatcher } from './replicas.ts'
import { replayOf } from './replay.ts'
import { simulate } from './simulate.ts'
import { parseTopology } from './topology.ts'

const profile = await loadProfile('h200-first')
const [rows, steps, layers, experts, topK] = [60, 14, 2, 32, 4]
const source = createRandom(7)
const ids = Uint8Array.from({ length: rows * steps * layers * topK }, () => source.below(experts))
const replay = replayOf({
  layers,
  experts,
  topK,
  ids,
  maxSteps: steps,
  steps: Array.from({ length: rows }, () => steps),
})
const features = Array.from({ length: rows }, () => ({
  counts: Uint16Array.from({ length: layers * experts }, () => source.below(20)),
}))
const settings: PolicyOptions = { workers: 6, shape: { layers, experts, topK } }

const gateways = (
  name: PolicyName,
  parts: Partial<Replicas> & { readonly anticipating?: boolean } = {},
): Replicas => ({
  name,
  count: 4,
  viewAgeMs: 0,
  entrance: 'random',
  create: unseen =>
    createDecodePolicy(name, { ...settings, unseen: parts.anticipating === true ? unseen : undefined })!,
  ...parts,
})

function run(decodePolicy: DecodePolicy | Replicas, perSecond = 4_000) {
  return simulate({
    workload: { arrivals: { kind: 'poisson', perSecond } },
    requests: 3000,
    seed: 3,
    replay,
    profile,
    topology: parseTopology('6D'),
    decodePolicy,
    featuresOf: request => features[request]!,
  }).result
}

describe('several gateways', () => {
  const policies = ['jsq', 'power_of_two', 'random', 'union'] as const

  it.each(policies)('with exact views decide exactly as one gateway would: %s', name => {
    const one = run(createDecodePolicy(name, settings)!)
    expect(run(gateways(name))).toEqual(one)
    expect(run(gateways(name, { entrance: 'round_robin' }))).toEqual(one)
    expect(run(gateways(name, { anticipating: true }))).toEqual(one)
  })

  it.each([...policies, 'round_robin'] as const)(
    'with a count of one are the gateway with exact loads: %s',
    name => {
      const one = run(createDecodePolicy(name, settings)!)
      for (const viewAgeMs of [0, 20, null]) expect(run(gateways(name, { count: 1, viewAgeMs }))).toEqual(one)
      expect(run(gateways(name, { count: 1, viewAgeMs: 20, anticipating: true }))).toEqual(one)
    },
  )

  it('give the same numbers for the same seed', () => {
    const asked = { viewAgeMs: 5, anticipating: true }
    expect(run(gateways('union', asked))).toEqual(run(gateways('union', asked)))
  })

  it('herd if their views are old, the more the older, and do not if they estimate unseen requests', () => {
    const imbalance = (parts: Parameters<typeof gateways>[1]) =>
      run(gateways('jsq', parts)).imbalance.inflight
    const exact = imbalance({ viewAgeMs: 0 })
    const late = [2, 10, 40].map(viewAgeMs => imbalance({ viewAgeMs }))
    expect(late[0]).toBeGreaterThan(exact)
    expect(late[1]).toBeGreaterThan(late[0]!)
    expect(late[2]).toBeGreaterThan(late[1]!)
    const supposed = imbalance({ viewAgeMs: 40, anticipating: true })
    expect(supposed - exact).toBeLessThan((late[2]! - exact) / 3)
  })
})

describe('the dispatcher of several gateways', () => {
  const request: RoutableRequest = { id: 'x' }

  /** Two gateways in turn; the loads that each sees at its decisions, and what its policy was told. */
  function watched(viewAgeMs: number | null) {
    const told: string[][] = [[], []]
    const views: number[][] = []
    let made = 0
    const dispatcher = replicaDispatcher(
      {
        name: 'jsq',
        count: 2,
        viewAgeMs,
        entrance: 'round_robin',
        create() {
          const own = told[made++]!
          return {
            name: 'jsq',
            pick: (_: RoutableRequest, candidates: readonly Candidate[]) => {
              views.push(candidates.map(({ inflight }) => inflight))
              return { worker: 0, reason: 'least_loaded' as const }
            },
            dispatched: (_: RoutableRequest, worker: number) => void own.push(`+${worker}`),
            released: (_: RoutableRequest, worker: number) => void own.push(`-${worker}`),
          }
        },
      },
      { workers: 2, requests: 10, ties: createRandom(1), entrances: createRandom(2) },
    )
    const seen = (index: number, nowMs: number) => {
      dispatcher.pick(index, request, nowMs * 1000)
      return views.at(-1)
    }
    return { dispatcher, told, seen }
  }

  it('shows each gateway its own requests at once and the other’s, including their ends, when they are old enough', () => {
    const { dispatcher, told, seen } = watched(20)
    dispatcher.dispatched(0, request, 1, 1_000) // by the first, at 1 ms
    expect(seen(2, 1)).toEqual([0, 1])
    expect(seen(1, 20.9)).toEqual([0, 0])
    expect(told).toEqual([['+1'], []])
    expect(seen(1, 21)).toEqual([0, 1])
    dispatcher.released(0, request, 1, { nowUs: 30_000, tokenUs: undefined })
    expect(seen(2, 30)).toEqual([0, 0])
    expect(seen(1, 49)).toEqual([0, 1])
    expect(seen(1, 50)).toEqual([0, 0])
    expect(told).toEqual([
      ['+1', '-1'],
      ['+1', '-1'],
    ])
  })

  it('never shows one gateway the other’s requests if they share nothing', () => {
    const { dispatcher, told, seen } = watched(null)
    dispatcher.dispatched(0, request, 1, 1_000)
    dispatcher.dispatched(1, request, 0, 2_000)
    expect(seen(0, 1e9)).toEqual([0, 1])
    expect(seen(1, 1e9)).toEqual([1, 0])
    expect(told).toEqual([['+1'], ['+0']])
  })
})
