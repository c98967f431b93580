import { describe, expect, it } from 'vitest'
import { readSamples, type Sample } from '../../../cluster/metrics-text.ts'
import { addLoopGauges } from '../../observe/metrics/gauges.ts'
import { Metrics } from '../../observe/metrics/metrics.ts'
import { MergedMetrics, type MetricsJson, ownPart } from './merged-metrics.ts'

/** As received from another process. */
const json = async (metrics: Metrics) =>
  JSON.parse(JSON.stringify(await metrics.registry.getMetricsAsJSON())) as MetricsJson
const NAMES = [
  'eldr_requests_total',
  'eldr_decisions_total',
  'eldr_leg_failures_total',
  'eldr_time_to_first_token_seconds_bucket',
  'eldr_time_to_first_token_seconds_count',
  'eldr_time_to_first_token_seconds_sum',
  'eldr_event_loop_delay_p99_seconds',
]
const samples = async (merged: MergedMetrics, own: Metrics) =>
  readSamples(await merged.text(await json(own)), new Set(NAMES))
const valueOf = (all: readonly Sample[], name: string, labels: Record<string, string> = {}) =>
  all.find(
    sample =>
      sample.name === name &&
      Object.entries(labels).every(([label, value]) => sample.labels[label] === value),
  )?.value

const BOUNDS = [0.01, 0.025, 0.1, 0.25, 1]

function relayWith(requests: number, ttftSeconds: number, delay: number): Metrics {
  const metrics = new Metrics()
  metrics.requests.inc('chat', 'ok', requests)
  const ttft = metrics.histogram('eldr_time_to_first_token_seconds', 'TTFT', ['route'], BOUNDS)
  for (let n = 0; n < requests; n++) ttft.series('chat').observe(ttftSeconds)
  metrics.legFailures.inc({ worker: 'd1', leg: 'decode', kind: 'reset' }, requests)
  addLoopGauges(metrics, () => ({ p99Seconds: () => delay }))
  return metrics
}

describe('metrics of several processes', () => {
  it('are summed, with buckets in order, and the longest delay is reported', async () => {
    const [merged, owner] = [new MergedMetrics(), new Metrics()]
    owner.decisions.inc('eldr', 'band_hit', 9)
    owner.requests.inc('admin', 'ok', 5) // counted by a relay
    merged.saw(1, await json(relayWith(3, 0.02, 0.5)))
    merged.saw(2, await json(relayWith(4, 0.2, 0.25)))
    const all = await samples(merged, owner)
    expect(valueOf(all, 'eldr_requests_total', { route: 'chat', outcome: 'ok' })).toBe(7)
    expect(valueOf(all, 'eldr_requests_total', { route: 'admin' })).toBeUndefined()
    expect(valueOf(all, 'eldr_decisions_total', { policy: 'eldr' })).toBe(9)
    const buckets = all.filter(({ name }) => name.endsWith('_bucket'))
    expect(buckets.map(({ labels, value }) => [labels['le'], value])).toEqual(
      [...BOUNDS, Infinity].map(bound => [
        bound === Infinity ? '+Inf' : String(bound),
        bound < 0.02 ? 0 : bound < 0.2 ? 3 : 7,
      ]),
    )
    expect(valueOf(all, 'eldr_time_to_first_token_seconds_count')).toBe(7)
    expect(valueOf(all, 'eldr_time_to_first_token_seconds_sum')).toBeCloseTo(0.86)
    expect(valueOf(all, 'eldr_event_loop_delay_p99_seconds')).toBe(0.5)
  })

  it('do not fall when a relay or the owner exits', async () => {
    const [merged, owner] = [new MergedMetrics(), new Metrics()]
    owner.decisions.inc('eldr', 'band_hit', 9)
    merged.saw(1, await json(relayWith(3, 0.02, 0.5)))
    await merged.gone(1)
    await merged.gone(1) // has no effect
    const after = async (these: MergedMetrics, own: Metrics) => {
      const all = await samples(these, own)
      return [
        valueOf(all, 'eldr_requests_total', { route: 'chat', outcome: 'ok' }),
        valueOf(all, 'eldr_time_to_first_token_seconds_count'),
        valueOf(all, 'eldr_decisions_total', { policy: 'eldr' }),
        valueOf(all, 'eldr_leg_failures_total', { worker: 'd1' }),
        valueOf(all, 'eldr_event_loop_delay_p99_seconds'),
      ]
    }
    expect(await after(merged, owner)).toEqual([3, 3, 9, 3, undefined])
    const next = new MergedMetrics(JSON.parse(JSON.stringify(merged.kept)) as MetricsJson)
    await next.keep(ownPart(await json(owner)))
    next.saw(1, await json(relayWith(2, 0.02, 0)))
    expect(await after(next, new Metrics())).toEqual([5, 5, 9, 5, 0])
    await next.forgetWorker('d1')
    await next.gone(1)
    expect((await after(next, new Metrics()))[3]).toBe(2)
  })

  it('lose no counts when several relays exit at once, or together with the owner', async () => {
    const [merged, owner] = [new MergedMetrics(), new Metrics()]
    for (const relay of [1, 2, 3]) merged.saw(relay, await json(relayWith(relay, 0.02, 0)))
    const requests = async (these: MergedMetrics) =>
      valueOf(await samples(these, owner), 'eldr_requests_total', { route: 'chat' })
    const going = [1, 2].map(relay => merged.gone(relay))
    expect(await requests(merged)).toBe(6)
    await Promise.all(going)
    expect(await requests(merged)).toBe(6)
    const next = new MergedMetrics(merged.kept, JSON.parse(JSON.stringify(merged.seen)) as typeof merged.seen)
    expect(Object.keys(next.seen)).toEqual(['3'])
    expect(await requests(next)).toBe(6)
    await next.gone(3)
    expect([await requests(next), Object.keys(next.seen)]).toEqual([6, []])
  })
})
