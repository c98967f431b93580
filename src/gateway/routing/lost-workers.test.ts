import { describe, expect, it } from 'vitest'
import { Registry } from '../../cluster/registry.ts'
import { LoadTracker } from '../../cluster/tickets.ts'
import { LostWorkers } from './lost-workers.ts'

const LIMITS = {
  consecutiveFailures: 5,
  windowMs: 30_000,
  windowRequests: 20,
  windowFailureShare: 0.5,
  openMs: 10_000,
}
const RANKS = ['a@0', 'a@1', 'a@2']

/** Three ranks of one server and one other worker, with requests that wait for the ranks. */
function start(left: number, waiting: number) {
  const registry = new Registry(new LoadTracker(), LIMITS)
  for (const [dpRank, id] of RANKS.entries()) registry.add({ id, role: 'decode', url: 'http://a:1', dpRank })
  registry.add({ id: 'b', role: 'decode', url: 'http://b:1' })
  registry.setHealth([...RANKS, 'b'], true)
  const lost: string[] = []
  const workers = new LostWorkers(registry, { left })
  const stops = RANKS.flatMap(id =>
    Array.from({ length: waiting }, () => workers.of(id).onStop(() => lost.push(id))),
  )
  return { registry, lost, stops }
}

describe('requests that wait for the ranks of a lost server', () => {
  it('are retried elsewhere within the retry budget that the ranks share', async () => {
    const { registry, lost } = start(4, 3)
    registry.setHealth(RANKS, false)
    expect(lost).toEqual(['a@0', 'a@0', 'a@0', 'a@1'])
    // The limit applies to one turn of the event loop.
    await new Promise(setImmediate)
    registry.setHealth(RANKS, true)
    registry.setHealth(['a@2'], false)
    expect(lost.slice(4)).toEqual(['a@2', 'a@2', 'a@2'])
  })

  it('keep waiting if there is no other worker', () => {
    const { registry, lost } = start(4, 1)
    registry.remove('b')
    registry.setHealth(RANKS, false)
    expect(lost).toEqual([])
  })
})
