import { describe, expect, it } from 'vitest'
import { readSamples, sumByName } from './metrics-text.ts'
import { RESTART_SAMPLES, RestartWatch } from './restart-watch.ts'

function watching() {
  const restarts: string[] = []
  return { restarts, watch: new RestartWatch(id => restarts.push(id)) }
}
const counters = (values: Record<string, number>) => new Map(Object.entries(values))

describe('a restart', () => {
  it('is detected once from another engine id in a worker’s hand-offs', () => {
    const { watch, restarts } = watching()
    for (const engine of ['e1', 'e1', 'e2', 'e2']) watch.sawEngineId('p0', engine)
    watch.sawEngineId('p1', 'e9')
    expect(restarts).toEqual(['p0'])
  })

  it('is not detected from data-parallel engines of one server, nor from a late hand-off', () => {
    const { watch, restarts } = watching()
    for (const engine of ['e1_dp0', 'e1_dp1', 'e1_dp0', 'e1_dp12']) watch.sawEngineId('p', engine)
    expect(restarts).toEqual([])
    for (const engine of ['e2_dp1', 'e1_dp0', 'e2_dp0']) watch.sawEngineId('p', engine)
    expect(restarts).toEqual(['p'])
  })

  it('is detected from a falling counter and from another start time, once per reading', () => {
    const { watch, restarts } = watching()
    watch.sawCounters(
      'd',
      counters({ 'vllm:generation_tokens_total': 500, process_start_time_seconds: 1.7e9 }),
    )
    watch.sawCounters(
      'd',
      counters({ 'vllm:generation_tokens_total': 900, process_start_time_seconds: 1.7e9 + 0.4 }),
    )
    expect(restarts).toEqual([])
    watch.sawCounters(
      'd',
      counters({ 'vllm:generation_tokens_total': 3, process_start_time_seconds: 1.7e9 + 60 }),
    )
    expect(restarts).toEqual(['d'])
    // A busy worker may have passed its old count before it is read.
    watch.sawCounters(
      'd',
      counters({ 'vllm:generation_tokens_total': 5000, process_start_time_seconds: 1.7e9 + 120 }),
    )
    expect(restarts).toEqual(['d', 'd'])
    watch.sawCounters('d', counters({ 'vllm:generation_tokens_total': 5001 }))
    expect(restarts).toEqual(['d', 'd'])
  })

  it('is not detected from missing or invalid values (sglang #32070: −1 used as a value)', () => {
    const { watch, restarts } = watching()
    const readings: Record<string, number>[] = [
      { x: 10 },
      {},
      { x: NaN },
      { x: -1 },
      { x: Infinity },
      { y: 1 },
      { x: 10 },
    ]
    for (const reading of readings) watch.sawCounters('d', counters(reading))
    expect(restarts).toEqual([])
    watch.sawCounters('d', counters({ x: 9 }))
    expect(restarts).toEqual(['d'])
  })

  it('is not detected for a worker that was forgotten and returns', () => {
    const { watch, restarts } = watching()
    watch.sawEngineId('w', 'e1')
    watch.sawCounters('w', counters({ x: 10 }))
    watch.forget('w')
    watch.sawEngineId('w', 'e2')
    watch.sawCounters('w', counters({ x: 0 }))
    expect(restarts).toEqual([])
  })

  it('is detected from vLLM’s metrics page', () => {
    const page = (started: number, tokens: number) =>
      `# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds ${started}e9\nvllm:generation_tokens_total{engine="0",model_name="m"} ${tokens}.0\nvllm:generation_tokens_total{engine="1",model_name="m"} 7.0\n`
    const { watch, restarts } = watching()
    for (const [started, tokens] of [
      [1.7, 40],
      [1.7, 60],
      [1.8, 80],
    ] as const)
      watch.sawCounters('d', sumByName(readSamples(page(started, tokens), RESTART_SAMPLES)))
    expect(restarts).toEqual(['d'])
  })
})
