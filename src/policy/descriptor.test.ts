import { describe, expect, it } from 'vitest'
import { eldrObject, makeCounts } from '../../test/fake-worker/index.ts'
import { createRoutingTable } from '../gateway/routing/routing-table.ts'
import { loadProfile } from '../cost/profile-file.ts'
import { createRandom } from '../math/random.ts'
import type { Replicas } from '../sim/replicas.ts'
import { replayOf } from '../sim/replay.ts'
import { simulate } from '../sim/simulate.ts'
import { parseTopology } from '../sim/topology.ts'
import { createDecodePolicy, missingFor } from './create-policy.ts'
import {
  type DecodePolicy,
  DECODE_POLICIES,
  DEFAULT_POLICY,
  isLoadBalancer,
  needsArtifact,
  POLICIES,
  type PolicyDescriptor,
  readsCounts,
  REASONS,
} from './decode-policy.ts'
import { createPrefillPolicy } from './prefill-policy.ts'

const [layers, experts, topK] = [2, 8, 2]
const shape = { layers, experts, topK }

/** Picks by the most used expert of the first layer. Not in the table. */
const TOP_EXPERT: PolicyDescriptor = {
  name: 'top_expert',
  needs: ['counts'],
  reasons: ['top_expert'],
  herds: false,
  create: ({ workers }): DecodePolicy => ({
    name: 'top_expert',
    pick({ counts }, candidates) {
      if (counts === undefined) return { worker: candidates[0]!.worker, reason: 'no_counts' }
      const first = Array.from(counts.subarray(0, experts))
      const wanted = first.indexOf(Math.max(...first)) % workers
      const worker = candidates.find(candidate => candidate.worker === wanted)?.worker
      return { worker: worker ?? candidates[0]!.worker, reason: 'top_expert' }
    },
  }),
}
/** A load balancer that is not in the table. */
const FIRST: PolicyDescriptor = {
  name: 'first',
  needs: [],
  reasons: ['first'],
  herds: true,
  create: () => ({
    name: 'first',
    pick: (_, candidates) => ({ worker: candidates[0]!.worker, reason: 'first' }),
  }),
}

describe('the table of decode policies', () => {
  it('has every policy once, and each creates a policy of its name', () => {
    expect(POLICIES).toEqual([
      'random',
      'round_robin',
      'jsq',
      'power_of_two',
      'domain',
      'band',
      'eldr',
      'union',
    ])
    for (const policy of DECODE_POLICIES) {
      const created = createDecodePolicy(policy, { workers: 2, shape })
      expect(created?.name).toBe(needsArtifact(policy) ? undefined : policy.name)
    }
  })

  it('tells load balancers from policies that read counts and from those that need an artifact', () => {
    const named = (test: (policy: PolicyDescriptor) => boolean) =>
      DECODE_POLICIES.filter(test).map(({ name }) => name)
    expect(named(isLoadBalancer)).toEqual(['random', 'round_robin', 'jsq', 'power_of_two'])
    expect(named(needsArtifact)).toEqual(['domain', 'band', 'eldr'])
    expect(named(readsCounts)).toEqual(['band', 'eldr', 'union'])
    expect(named(({ herds }) => !herds)).toEqual(['random', 'round_robin', 'power_of_two'])
    expect(DEFAULT_POLICY).toBe('union')
  })

  it('says what a policy is missing', () => {
    expect(missingFor('jsq', { workers: 2 })).toBeUndefined()
    expect(missingFor('union', { workers: 2 })).toEqual({
      need: 'counts',
      words: 'an artifact, or the shape of the model',
    })
    expect(missingFor('eldr', { workers: 2, shape })).toEqual({
      need: 'clusters',
      words: 'an artifact with centroids',
    })
    expect(missingFor('domain', { workers: 2, shape })?.need).toBe('labels')
  })

  it('keeps the reasons, which are metric labels', () => {
    expect(REASONS).toEqual([
      'random',
      'round_robin',
      'least_loaded',
      'two_choices',
      'domain',
      'band_hit',
      'band_spill',
      'match_hit',
      'match_spill',
      'least_cost',
      'no_signature',
      'no_counts',
      'no_domain',
      'no_centroid',
    ])
  })
})

describe('a policy from outside the table', () => {
  const source = createRandom(7)
  const [rows, steps] = [40, 8]
  const replay = replayOf({
    ...shape,
    ids: Uint8Array.from({ length: rows * steps * layers * topK }, () => source.below(experts)),
    maxSteps: steps,
    steps: Array.from({ length: rows }, () => steps),
  })
  const features = Array.from({ length: rows }, () => ({
    counts: Uint16Array.from({ length: layers * experts }, () => source.below(20)),
  }))

  it.each([TOP_EXPERT, FIRST])(
    'runs in the simulator, with one gateway and with several: $name',
    async policy => {
      const profile = await loadProfile('h200-first')
      const create = () => createDecodePolicy(policy, { workers: 4, shape })!
      const several: Replicas = { name: policy.name, count: 3, viewAgeMs: 0, entrance: 'random', create }
      const [one, three] = [create(), several].map(
        decodePolicy =>
          simulate({
            workload: { arrivals: { kind: 'poisson', perSecond: 500 } },
            requests: 300,
            seed: 1,
            replay,
            profile,
            topology: parseTopology('4D'),
            decodePolicy,
            featuresOf: request => features[request]!,
          }).result,
      )
      expect(one!.policy).toBe(policy.name)
      expect(Object.keys(one!.reasons)).toEqual([...policy.reasons])
      expect(three).toEqual(one)
    },
  )

  it('routes the hand-offs of a gateway, by load until the shape of the model is known', () => {
    const counts = makeCounts({ ...shape, tokens: 32 }, 5)
    const handoff = {
      counts: Buffer.from(JSON.stringify(eldrObject({ ...shape, tokens: 32 }, counts))),
      routedExperts: undefined,
      promptTokens: 32,
    }
    const candidates = [0, 1, 2, 3].map(worker => ({ worker, inflight: worker }))
    const decide = (policy: PolicyDescriptor, known: Partial<{ shape: typeof shape }>) => {
      const result = createRoutingTable({ policy, workers: 4, minCovered: 0.5, ...known })
      if (result.kind === 'missing') throw new Error(result.missing)
      const { table } = result
      return table.policy.pick(table.read('r', handoff).routable, candidates, { random: () => 0 })
    }
    const first = Array.from(counts.subarray(0, experts))
    expect(decide(TOP_EXPERT, { shape })).toEqual({
      worker: first.indexOf(Math.max(...first)) % 4,
      reason: 'top_expert',
    })
    expect(decide(TOP_EXPERT, {})).toEqual({ worker: 0, reason: 'least_loaded' })
    expect(decide(FIRST, {})).toEqual({ worker: 0, reason: 'first' })
  })

  it('works for prefill too', () => {
    const last = createPrefillPolicy({
      name: 'last',
      create: () => ({
        name: 'last',
        pick: (_, candidates) => ({ worker: candidates.at(-1)!.worker, reason: 'last' }),
      }),
    })
    const candidates = [0, 1].map(worker => ({ worker, inflight: 0 }))
    expect(last.pick({}, candidates, { random: () => 0 })).toEqual({ worker: 1, reason: 'last' })
    expect(createPrefillPolicy('round_robin').name).toBe('round_robin')
  })
})
