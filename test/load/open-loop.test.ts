/**
 * No coordinated omission: a stalled server still gets requests, and a late client reports its delay and
 * counts it.
 */
import type { ServerResponse } from 'node:http'
import { describe, expect, it } from 'vitest'
import { figuresOf } from '../../src/load/figures.ts'
import type { OpenLoop } from '../../src/load/pacing.ts'
import { every, load, serve, stream } from './support.ts'

describe('open loop', () => {
  it('keeps sending while the server stalls, and counts the waiting of all requests in between', async () => {
    const [REQUESTS, FROM, HELD, GAP_MS] = [60, 10, 30, 5]
    let came = 0
    const held = new Map<unknown, ServerResponse>()
    let releasedMs = NaN
    const server = await serve((request, response) => {
      // From the 10th request on the server does not respond until 30 more have arrived. A client that waits
      // for responses would never get there.
      if (came++ < FROM || !Number.isNaN(releasedMs)) return stream(response)
      if (held.set(request.headers['x-request-id'], response).size < HELD) return undefined
      releasedMs = performance.now()
      return held.forEach(one => stream(one))
    })
    const run = await load(server.url, { loop: every(GAP_MS), requests: REQUESTS })
    await server.stop()
    const figures = figuresOf(run)
    expect(figures.requests).toMatchObject({ ok: REQUESTS })
    const stalled = run.exchanges.filter(({ index }) => held.has(`test-${index}`))
    expect(stalled).toHaveLength(HELD)
    for (const { firstMs, plannedMs } of stalled)
      expect(firstMs - plannedMs).toBeGreaterThanOrEqual(releasedMs - plannedMs)
    // Half of all requests waited for a part of the stall, and the quantiles show it.
    expect(figures.ttftMs.p90).toBeGreaterThan(0.6 * HELD * GAP_MS)
    expect(figures.ttftMs.p50).toBeGreaterThan(0)
  })

  it('counts its own delay and reports that it could not keep up', async () => {
    const [GAP_MS, BLOCK_MS] = [5, 250]
    const server = await serve((_, response) => stream(response))
    const loop = every(GAP_MS) as OpenLoop
    let planned = 0
    // The client blocks after its fifth request, before it plans the next. Which requests are late, and by
    // how much at least, does not depend on when the server gets them.
    const nextMs = () => {
      if (++planned === 6) for (const untilMs = performance.now() + BLOCK_MS; performance.now() < untilMs;);
      return loop.nextMs()
    }
    const run = await load(server.url, { loop: { kind: 'open', nextMs }, requests: 60 })
    await server.stop()
    const { client, ttftMs } = figuresOf(run)
    expect(client).toMatchObject({ isOpenLoop: true, keptUp: false })
    expect(client.sendLagMs.max).toBeGreaterThan(0.8 * BLOCK_MS)
    // Requests due in between were sent late; their latency counts from the planned time.
    const late = run.exchanges.filter(({ sentMs, plannedMs }) => sentMs - plannedMs > BLOCK_MS / 2)
    expect(late.length).toBeGreaterThan(10)
    for (const { firstMs, plannedMs } of late) expect(firstMs - plannedMs).toBeGreaterThan(BLOCK_MS / 2)
    expect(ttftMs.p90).toBeGreaterThan(BLOCK_MS / 2)
  })
})
