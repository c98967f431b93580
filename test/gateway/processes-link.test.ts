/** Messages between relays and the owner when one of them disconnects or waits. */
import { afterAll, afterEach, describe, expect, it } from 'vitest'
import { NEVER } from '../../src/gateway/routing/lost-workers.ts'
import { ASK } from '../../src/gateway/scale/processes/messages.ts'
import { UpstreamFailure } from '../../src/gateway/upstream/upstreams.ts'
import { temporaryFolder } from '../trace-support.ts'
import { polled } from '../worker/processes.ts'
import { createDecider, startLink, startOwner } from './owner-stage.ts'

const NONE = new Set<string>()
const folder = temporaryFolder()
const open: { close(): unknown }[] = []
afterEach(async () => {
  for (const one of open.splice(0).toReversed()) await one.close()
})
afterAll(() => folder.remove())

const LIMITS = { maxConcurrentRequests: 2, queueSize: 1, queueTimeoutMs: 5_000 }

async function stage(limits = LIMITS) {
  const decider = createDecider({ policy: 'union', limits })
  const owner = await startOwner(folder.path, decider)
  open.push({ close: () => owner.die() })
  const link = async (relay: number, more: Parameters<typeof startLink>[2] = {}) => {
    const one = await startLink(owner.path, relay, more, limits)
    open.push(one.link)
    return one
  }
  return { decider, owner, link }
}

/** Resolves when the owner has processed all messages of this relay. */
const heard = ({ placement }: Awaited<ReturnType<typeof startLink>>) =>
  placement.mayRetry('prefill', new Set(['prefill-0', 'prefill-1', 'prefill-2', 'prefill-3']))
const until = (holds: () => boolean, what: string) =>
  polled(async () => (await new Promise(setImmediate), holds()), Boolean, what)

/** A request that can be aborted. */
function stoppable() {
  let listener: ((reason: UpstreamFailure) => void) | undefined
  return {
    onStop(given: (reason: UpstreamFailure) => void) {
      listener = given
      return () => void (listener = undefined)
    },
    stop: () => listener?.(new UpstreamFailure('aborted', 'client_gone')),
  }
}

describe('a relay that disconnects', () => {
  it('releases its own tickets, admissions and queue entries, and no others', async () => {
    const { decider, link } = await stage()
    const [first, second] = [await link(1), await link(2)]
    await first.admission.enter(NEVER)
    await second.admission.enter(NEVER)
    for (const { placement } of [first, second]) {
      await placement.toPrefill(1, 10, NONE)
      await placement.toDecode('a', undefined, 20, NONE)
      await placement.toRelease(NONE)
    }
    const waits = first.admission.enter(NEVER)
    await until(() => decider.admission.queued === 1, 'one queued request')
    expect([
      decider.admission.running,
      decider.tracker.total('prefill').inflight,
      decider.tracker.total('decode').inflight,
    ]).toEqual([2, 2, 4])
    first.link.close()
    await until(() => decider.admission.running === 1, 'its admission to be released')
    expect([
      decider.admission.queued,
      decider.tracker.total('prefill'),
      decider.tracker.total('decode'),
    ]).toEqual([0, { inflight: 1, tokens: 10 }, { inflight: 2, tokens: 20 }])
    expect(decider.router.decodeWorkersOf('a')).toHaveLength(1)
    expect(decider.tracker.doubleReleases).toBe(0)
    void waits
  })
})

describe('queued requests', () => {
  it('are admitted when a request ends, at any relay', async () => {
    const { decider, link } = await stage()
    const [first, second] = [await link(1), await link(2)]
    await first.admission.enter(NEVER)
    await first.admission.enter(NEVER)
    const waits = second.admission.enter(NEVER)
    await until(() => decider.admission.queued === 1, 'one queued request')
    // Both relays learn that the owner is at capacity, without asking.
    for (const { admission } of [first, second])
      await until(() => {
        try {
          admission.check()
          return false
        } catch {
          return true
        }
      }, 'no capacity')
    await expect(first.admission.enter(NEVER)).rejects.toMatchObject({
      code: 'ELDR_OVERLOADED',
      retryAfterSeconds: 3,
    })
    first.admission.leave()
    await waits
    await until(() => !first.admission.mustWait || decider.admission.queued === 0, 'capacity in the queue')
    expect(() => first.admission.check()).not.toThrow()
    expect(decider.admission.running).toBe(2)
  })

  it('that are aborted leave no admission behind', async () => {
    const { decider, link } = await stage()
    const relay = await link(1)
    await relay.admission.enter(NEVER)
    await relay.admission.enter(NEVER)
    const request = stoppable()
    const waits = relay.admission.enter(request)
    await until(() => decider.admission.queued === 1, 'one queued request')
    request.stop()
    await expect(waits).rejects.toBeInstanceOf(UpstreamFailure)
    await until(() => decider.admission.queued === 0, 'an empty queue')
    // Aborted while the response is on its way.
    relay.admission.leave()
    const late = stoppable()
    const entering = relay.admission.enter(late)
    late.stop()
    await expect(entering).rejects.toBeInstanceOf(UpstreamFailure)
    await heard(relay)
    await until(() => decider.admission.running === 1, 'one admission')
    expect(relay.link.running).toBe(1)
  })

  it('fail after the queue timeout', async () => {
    const { link } = await stage({ ...LIMITS, queueTimeoutMs: 30 })
    const relay = await link(1)
    await relay.admission.enter(NEVER)
    await relay.admission.enter(NEVER)
    await expect(relay.admission.enter(NEVER)).rejects.toMatchObject({ code: 'ELDR_QUEUE_TIMEOUT' })
  })
})

describe('without an owner', () => {
  it('relay requests wait for the next one, and fail with ELDR_OWNER_AWAY if none comes', async () => {
    const { owner, link } = await stage()
    const relay = await link(1, { timeoutMs: 150 })
    await owner.die()
    const waits = relay.placement.toDecode('a', undefined, 1, NONE)
    await expect(waits).rejects.toMatchObject({ code: 'ELDR_OWNER_AWAY', status: 503, retryAfterSeconds: 1 })
    await expect(relay.placement.toPrefill(1, 1, NONE)).rejects.toMatchObject({ code: 'ELDR_OWNER_AWAY' })
    const next = await startOwner(folder.path, createDecider({ policy: 'jsq' }))
    open.push({ close: () => next.die() })
    const again = async () => {
      await new Promise(setImmediate) // refusals come at once and would leave no time for the connection
      return Promise.resolve(relay.placement.toDecode('b', undefined, 1, NONE)).catch(() => undefined)
    }
    const place = await polled(again, found => found !== undefined, 'an owner')
    expect(place!.policy).toBe('jsq')
  })

  it('a new one waits a limited time for the known relays before it responds', async () => {
    const { owner, link } = await stage()
    const relay = await link(1)
    await owner.die()
    const decider = createDecider({ policy: 'jsq' })
    const next = await startOwner(folder.path, decider, { relays: [1, 2], timeoutMs: 60_000 })
    open.push({ close: () => next.die() })
    let answered = false
    const question = Promise.resolve(relay.placement.toPrefill(1, 5, NONE)).then(dispatch => {
      answered = true
      return dispatch
    })
    await until(() => [...next.server.relays].some(({ number }) => number === 1), 'the first relay')
    await new Promise(setImmediate)
    expect([answered, decider.tracker.total('prefill').inflight]).toEqual([false, 0])
    next.server.relayDied(2)
    expect((await question)!.worker.role).toBe('prefill')
    const last = await startOwnerAfter(next, { relays: [1, 2], timeoutMs: 50 })
    expect(await relay.placement.toPrefill(1, 5, NONE)).toBeDefined()
    expect(last.server.relays).toBeDefined()
  })

  it('a new one with capacity tells relays that knew of none', async () => {
    const limits = { ...LIMITS, queueSize: 0 }
    const { owner, link } = await stage(limits)
    const relay = await link(1)
    await relay.admission.enter(NEVER)
    await relay.admission.enter(NEVER)
    await until(() => relay.admission.room % 2 === 1, 'no capacity')
    await owner.die()
    relay.admission.leave()
    relay.admission.leave()
    await startOwnerAfter(owner, { relays: [1] })
    await heard(relay)
    expect(() => relay.admission.check()).not.toThrow()
    await relay.admission.enter(NEVER)
  })

  it('tickets of a worker that is registered later count from then on', async () => {
    const { owner, link } = await stage()
    const relay = await link(1)
    const place = await relay.placement.toDecode('a', undefined, 30, NONE)
    await owner.die()
    const decider = createDecider({ policy: 'jsq' })
    const { worker } = place!
    decider.registry.remove(worker.id)
    const next = await startOwner(folder.path, decider, { relays: [1] })
    open.push({ close: () => next.die() })
    await heard(relay)
    expect(decider.tracker.total('decode').inflight).toBe(0)
    decider.registry.add(worker)
    expect([
      decider.tracker.inflight(worker.id, 'decode'),
      decider.tracker.tokens(worker.id, 'decode'),
    ]).toEqual([1, 30])
    place!.end('succeeded')
    await heard(relay)
    expect(decider.tracker.total('decode').inflight).toBe(0)
  })
})

describe('the end of a request', () => {
  it('carries the time between its tokens to the policy of the owner, if it is known', async () => {
    const { decider, link } = await stage()
    const released: (number | undefined)[] = []
    decider.table.policy.released = (_, __, tokenUs) => void released.push(tokenUs)
    const relay = await link(1)
    for (const tokenUs of [12_345.5, undefined])
      (await relay.placement.toDecode('a', undefined, 1, NONE))!.end('succeeded', { tokenUs })
    await heard(relay)
    expect(released).toEqual([12_345.5, undefined])
  })
})

describe('other messages', () => {
  it('carry failures, engine ids, paces, lost workers, removed workers and reports', async () => {
    const { decider, owner, link } = await stage()
    const [lost, forgotten]: [[string, number][], string[]] = [[], []]
    const relay = await link(7, {
      lost: (worker, left) => void lost.push([worker, left]),
      forgotten: ({ id }) => void forgotten.push(id),
      report: async (what, about) => ({ what, about }),
    })
    relay.link.tell(ASK.passiveFailure, 0, to => to.text('decode-1'))
    relay.link.tell(ASK.sawEngine, 0, to => to.text('prefill-1').text('engine-é'))
    relay.link.tell(ASK.pace, 0, to => to.byte(1).text('union').number(1.5))
    await heard(relay)
    expect(owner.told).toEqual({
      failures: ['decode-1'],
      engines: [['prefill-1', 'engine-é']],
      paces: [['stream', 'union', 1.5]],
    })
    const place = await relay.placement.toDecode('a', undefined, 1, NONE)
    const { id } = place!.worker
    decider.registry.setHealth(id, false)
    await heard(relay)
    expect(lost).toEqual([[id, 10]])
    decider.registry.remove(id)
    place!.end('failed')
    await heard(relay)
    await heard(relay)
    expect(forgotten).toEqual([id])
    const [session] = owner.server.relays
    expect(await session!.ask(19, 'request-1', 1_000)).toEqual({ what: 'request', about: 'request-1' })
    expect(session!.number).toBe(7)
  })
})

/** Replaces an owner that dies. */
async function startOwnerAfter(
  before: Awaited<ReturnType<typeof startOwner>>,
  awaited: Parameters<typeof startOwner>[2],
) {
  await before.die()
  const next = await startOwner(folder.path, createDecider({ policy: 'jsq', limits: LIMITS }), awaited)
  open.push({ close: () => next.die() })
  return next
}
