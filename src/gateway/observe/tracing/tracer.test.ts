import { randomBytes } from 'node:crypto'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { readExport } from '../../../../test/gateway/otlp-receiver.ts'
import { encodeResource, encodeTrace, exportBody } from './otlp.ts'
import { RequestTrace } from './request-trace.ts'
import { KIND, real } from './span.ts'
import { isSampled, Tracer } from './tracer.ts'

describe('sampling', () => {
  it('depends on the id alone; a larger ratio keeps all traces of a smaller one', () => {
    const ids = Array.from({ length: 4_000 }, () => randomBytes(16).toString('hex'))
    const kept = [0, 0.01, 0.25, 0.5, 1].map(ratio => new Set(ids.filter(id => isSampled(id, ratio))))
    expect([kept[0]!.size, kept[4]!.size]).toEqual([0, ids.length])
    // At least six standard deviations.
    expect(Math.abs(kept[2]!.size - 1_000)).toBeLessThan(170)
    expect(Math.abs(kept[3]!.size - 2_000)).toBeLessThan(190)
    for (let at = 1; at < kept.length; at++)
      for (const id of kept[at - 1]!) expect(kept[at]!.has(id)).toBe(true)
  })

  it('follows the caller’s decision at any ratio and keeps its random-id flag', () => {
    const tracer = new Tracer({ add() {}, missed() {} }, 0)
    const traceparent = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-03`
    expect(tracer.begin({ traceparent }, 'x', 0)!.root.traceparent).toMatch(/^00-a{32}-[0-9a-f]{16}-03$/)
    expect(tracer.begin({ traceparent: traceparent.replace(/3$/, '2') }, 'x', 0)).toBeUndefined()
    const headers: Record<string, string> = { tracestate: 'a=b' }
    expect(tracer.begin(headers, 'x', 0)).toBeUndefined()
    expect(headers).toEqual({
      traceparent: expect.stringMatching(/^00-[0-9a-f]{32}-[0-9a-f]{16}-00$/) as string,
    })
  })
})

describe('OTLP JSON of spans', () => {
  const newTrace = () => {
    const context = { traceId: 'a'.repeat(32), spanId: 'b'.repeat(16), flags: 1 }
    let next = 0
    return new RequestTrace({ context, parentId: undefined, tracestate: undefined }, 'root', 10, () =>
      String(++next).padStart(16, '0'),
    )
  }
  const read = (trace: RequestTrace) =>
    readExport(
      JSON.parse(
        exportBody(encodeResource({ serviceName: 's', version: '1', instanceId: 'i' }), [encodeTrace(trace)]),
      ),
    )

  it('types attribute values and leaves out those that JSON cannot represent', () => {
    const trace = newTrace()
    trace.root
      .set({
        text: 'a"\n',
        whole: 7,
        half: 0.5,
        one: real(1),
        on: true,
        none: undefined,
        nan: NaN,
        far: real(Infinity),
      })
      .end(12)
    expect(encodeTrace(trace)).toContain('{"key":"one","value":{"doubleValue":1}}')
    expect(encodeTrace(trace)).toContain('{"key":"whole","value":{"intValue":"7"}}')
    expect(read(trace).spans[0]!.attributes).toEqual({ text: 'a"\n', whole: 7, half: 0.5, one: 1, on: true })
    expect(read(trace).resource).toEqual({
      'service.name': 's',
      'service.version': '1',
      'service.instance.id': 'i',
      'process.pid': process.pid,
    })
  })

  it('leaves out attributes without a value, such as the rank of a worker that has none', () => {
    const trace = newTrace()
    trace.child('decode', KIND.client)!.set({ 'eldr.worker': 'd:1@2', 'eldr.dp_rank': 2 })
    trace.child('decode', KIND.client)!.set({ 'eldr.worker': 'e:1', 'eldr.dp_rank': undefined })
    trace.end()
    const [, ranked, plain] = read(trace).spans
    expect(ranked!.attributes).toMatchObject({ 'eldr.worker': 'd:1@2', 'eldr.dp_rank': 2 })
    expect(plain!.attributes).not.toHaveProperty('eldr.dp_rank')
  })

  it('has times in nanoseconds that keep order and distance', () => {
    vi.useFakeTimers({ toFake: ['Date', 'performance'] })
    onTestFinished(() => void vi.useRealTimers())
    const trace = newTrace()
    trace.root.end(10.0005)
    const { startNanos, endNanos } = read(trace).spans[0]!
    expect(Number(endNanos - startNanos)).toBeGreaterThanOrEqual(0)
    // A double holds Unix time in milliseconds to a fraction of a microsecond.
    expect(Math.abs(Number(endNanos - startNanos) - 500)).toBeLessThan(500)
    expect(Math.abs(Number(startNanos / 1_000_000n) - (Date.now() - performance.now() + 10))).toBeLessThan(1)
  })

  it('ends spans left open by an internal error with the request, as failed', () => {
    const trace = newTrace()
    const open = trace.child('leg', KIND.client, 11)!
    trace.end()
    expect(open.endMs).toBe(trace.root.endMs)
    expect(read(trace).spans.map(({ error }) => error)).toEqual([undefined, 'internal error in the gateway'])
  })
})
