/** An owner with three relays decides as one process does, and a new owner knows what the last one knew. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { Artifact } from '../../src/fit/artifact.ts'
import { vllmNixl } from '../../src/gateway/engines/vllm-nixl.ts'
import { type ClientRequest, readRequest } from '../../src/gateway/http/client-request.ts'
import type { HandoffExperts } from '../../src/gateway/routing/read-experts.ts'
import type { PlacementClient } from '../../src/gateway/routing/placement-client.ts'
import type { DecodePlacement, Placement } from '../../src/gateway/routing/placement.ts'
import { createRandom } from '../../src/math/random.ts'
import { eldrObject, makeCounts } from '../fake-worker/index.ts'
import { temporaryFolder } from '../trace-support.ts'
import { smallArtifact } from './admin-support.ts'
import { SHAPE } from './cluster.ts'
import { createDecider, type Decider, startLink, startOwner, WORKERS } from './owner-stage.ts'
import { pushEngine } from './push-engine.ts'

const STEPS = 600
const POLICIES = ['eldr', 'union', 'jsq', 'power_of_two'] as const
const folder = temporaryFolder()
let artifact: Artifact
const open: { close(): unknown }[] = []
beforeAll(async () => void (artifact = (await smallArtifact(folder.path, WORKERS)).artifact))
afterEach(async () => {
  for (const one of open.splice(0).toReversed()) await one.close()
})
afterAll(() => folder.remove())

type Step =
  | {
      readonly kind: 'prefill'
      readonly by: number
      readonly key: number | undefined
      readonly tokens: number
      readonly exclude: ReadonlySet<string>
    }
  | {
      readonly kind: 'decode'
      readonly by: number
      readonly counts: object | undefined
      readonly tokens: number
      readonly exclude: ReadonlySet<string>
    }
  /** The n-th oldest request in flight. */
  | { readonly kind: 'end'; readonly nth: number; readonly how: 'succeeded' | 'failed' | 'ignored' }

function schedule(seed: number): Step[] {
  const random = createRandom(seed)
  const upTo = (n: number) => Math.floor(random.uniform() * n)
  const exclude = (role: string) => new Set(random.uniform() < 0.1 ? [`${role}-${upTo(WORKERS)}`] : [])
  return Array.from({ length: STEPS }, (_, n): Step => {
    const by = upTo(3)
    // More come than go, and then the other way round.
    if (random.uniform() < (n < STEPS / 2 ? 0.35 : 0.6))
      return {
        kind: 'end',
        nth: upTo(1_000),
        how: random.uniform() < 0.9 ? 'succeeded' : random.uniform() < 0.5 ? 'ignored' : 'failed',
      }
    const tokens = 8 + upTo(100)
    if (random.uniform() < 0.4)
      return {
        kind: 'prefill',
        by,
        key: random.uniform() < 0.2 ? undefined : upTo(12),
        tokens,
        exclude: exclude('prefill'),
      }
    const counts =
      random.uniform() < 0.1
        ? undefined
        : eldrObject({ ...SHAPE, tokens }, makeCounts({ ...SHAPE, tokens }, 1000 + upTo(8)))
    return { kind: 'decode', by, counts, tokens, exclude: exclude('decode') }
  })
}

/** `placings`: by relay. `settled`: when what one of them has said is known. */
async function play(
  steps: readonly Step[],
  placings: readonly PlacementClient[],
  settled: (by: number) => Promise<void>,
) {
  const out: { by: number; placement: Placement }[] = []
  const decided: unknown[] = []
  for (const [n, step] of steps.entries()) {
    if (step.kind === 'end') {
      const [one] = out.splice(step.nth % Math.max(1, out.length), 1)
      if (one === undefined) continue
      one.placement.end(step.how)
      await settled(one.by)
    } else if (step.kind === 'prefill') {
      const placement = await placings[step.by]!.toPrefill(step.key, step.tokens, step.exclude)
      decided.push(placement && [placement.worker.id, placement.worker.url, placement.index])
      if (placement !== undefined) out.push({ by: step.by, placement })
    } else {
      const counts = step.counts && Buffer.from(JSON.stringify(step.counts))
      const handoff: HandoffExperts = { counts, routedExperts: undefined, promptTokens: step.tokens }
      const place = await placings[step.by]!.toDecode(`request-${n}`, handoff, step.tokens, step.exclude)
      decided.push(place && shown(place))
      if (place !== undefined) out.push({ by: step.by, placement: place })
    }
  }
  return { decided, out }
}

function shown({ worker, index, decision, policy, similarity, covered }: DecodePlacement): unknown[] {
  const { worker: picked, reason, band } = decision
  return [worker.id, worker.url, index, picked, reason, band, policy, similarity, covered]
}

async function remote(decider: Decider, awaited = {}) {
  const owner = await startOwner(folder.path, decider, awaited)
  const links = await Promise.all([1, 2, 3].map(relay => startLink(owner.path, relay)))
  open.push({ close: () => owner.die() }, ...links.map(({ link }) => link))
  /** A response means that all messages before it were processed. */
  const settled = async (by: number) =>
    void (await links[by]!.placement.mayRetry(
      'prefill',
      new Set(['prefill-0', 'prefill-1', 'prefill-2', 'prefill-3']),
    ))
  return { owner, links, settled, placings: links.map(({ placement }) => placement) }
}

const optionsOf = (policy: (typeof POLICIES)[number]) => ({ policy, ...(policy === 'eldr' && { artifact }) })
const loads = ({ registry }: Decider) =>
  registry
    .views(performance.now())
    .map(({ spec, inflight, tokens, breaker }) => [spec.id, inflight, tokens, breaker])
const expected = ({ table }: Decider) =>
  Array.from({ length: WORKERS }, (_, worker) => table.policy.expectedExperts?.(worker))

describe('an owner with three relays', () => {
  it.each(POLICIES)('decides and counts as one process does: %s', async policy => {
    const [plain, owned] = [createDecider(optionsOf(policy)), createDecider(optionsOf(policy))]
    const steps = schedule(3)
    const alone = await play(steps, [plain.placement, plain.placement, plain.placement], async () => {})
    const { placings, settled } = await remote(owned)
    const together = await play(steps, placings, settled)
    expect(together.decided).toEqual(alone.decided)
    expect(alone.decided.length).toBeGreaterThan(250)
    expect(loads(owned)).toEqual(loads(plain))
    expect(expected(owned)).toEqual(expected(plain))
    // Every worker got requests.
    expect(new Set(alone.decided.map(one => (one as string[])[0])).size).toBe(2 * WORKERS)
    for (const { placement } of together.out) placement.end('ignored')
    for (const by of [0, 1, 2]) await settled(by)
    expect([owned.tracker.total('prefill'), owned.tracker.total('decode')]).toEqual([
      { inflight: 0, tokens: 0 },
      { inflight: 0, tokens: 0 },
    ])
    expect(owned.tracker.doubleReleases).toBe(0)
  })
})

describe('the counts of any engine', () => {
  it.each([
    ['vllm-nixl', 'kv_transfer_params', vllmNixl({ reuseTokenIds: false })],
    ['push', 'pushed', pushEngine()],
  ])('reach the owner: %s', async (_, field, engine) => {
    const eldr = eldrObject({ ...SHAPE, tokens: 16 }, makeCounts({ ...SHAPE, tokens: 16 }, 1003))
    const transfer = {
      id: 'a',
      remote_block_ids: [[1]],
      remote_engine_id: 'e',
      remote_request_id: 'r',
      remote_host: 'h',
      remote_port: 1,
      eldr,
    }
    const response = JSON.stringify({ [field]: transfer, experts: eldr, usage: { prompt_tokens: 16 } })
    const request = readRequest('completions', Buffer.from('{"prompt":"a"}'), engine) as ClientRequest
    const read = engine.readHandoff(Buffer.from(response), request)
    if (read.kind === 'invalid') throw new Error(read.why)
    const { placings } = await remote(createDecider(optionsOf('union')))
    const place = await placings[0]!.toDecode('r', read.handoff, 16, new Set())
    expect(place).toMatchObject({ covered: 1, policy: 'union' })
  })
})

describe('an owner that replaces another', () => {
  it.each(POLICIES)('continues as the first would have: %s', async policy => {
    const [plain, first, second] = [
      createDecider(optionsOf(policy)),
      createDecider(optionsOf(policy)),
      createDecider(optionsOf(policy)),
    ]
    const steps = schedule(5).slice(0, STEPS / 2)
    await play(steps, [plain.placement, plain.placement, plain.placement], async () => {})
    const { owner, links, settled, placings } = await remote(first)
    const { out } = await play(steps, placings, settled)
    expect(out.length).toBeGreaterThan(20)
    await owner.die()
    const next = await startOwner(folder.path, second, { relays: [1, 2, 3] })
    open.push({ close: () => next.die() })
    for (const by of [0, 1, 2]) await settled(by)
    // Breakers start closed.
    const without = (decider: Decider) =>
      loads(decider).map(([id, inflight, tokens]) => [id, inflight, tokens])
    expect(without(second)).toEqual(without(plain))
    expect(expected(second)).toEqual(expected(plain))
    expect(links.reduce((sum, { link }) => sum + link.tickets, 0)).toBe(out.length)
    for (const { placement } of out) placement.end('succeeded')
    for (const by of [0, 1, 2]) await settled(by)
    expect([second.tracker.total('prefill'), second.tracker.total('decode')]).toEqual([
      { inflight: 0, tokens: 0 },
      { inflight: 0, tokens: 0 },
    ])
    const idle = createDecider(optionsOf(policy))
    expect(expected(second)).toEqual(expected(idle))
  })
})
