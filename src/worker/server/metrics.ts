/**
 * Prometheus metrics of the worker, with vLLM’s names where vLLM has one, so that dashboards and routers for
 * vLLM work unchanged. Numbers that the engine keeps are read at scrape time. Model and engine are default
 * labels of the registry: series without labels of their own are the cheapest to update.
 */
import { Counter, Gauge, Histogram, Registry } from 'prom-client'
import type { EngineStats, WorkerEngine } from '../types.ts'

/** vLLM’s buckets start at 10 ms, which hides small models and fast replays. The smaller buckets are ours. */
const TOKEN_SECONDS = [
  0.001, 0.0025, 0.005, 0.0075, 0.01, 0.0125, 0.015, 0.02, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
  0.75, 1, 2.5, 5,
]
const FIRST_SECONDS = [
  0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
]
const REQUEST_SECONDS = [
  0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480,
]
const TRANSFER_SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5]
const TOKENS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000]

/** Counts of the side channel, if there is one. */
export interface KvCounts {
  readonly leases: number
  readonly leasedBlocks: number
  readonly connections: number
}

export interface MetricsSource {
  readonly engine: Pick<WorkerEngine, 'stats'>
  readonly model: string
  readonly rank: number
  kv(): KvCounts | undefined
}

export class WorkerMetrics {
  readonly registry = new Registry()

  readonly ttftSeconds = this.#histogram(
    'vllm:time_to_first_token_seconds',
    'Time to first token in seconds',
    FIRST_SECONDS,
  )
  readonly interTokenSeconds = this.#histogram(
    'vllm:inter_token_latency_seconds',
    'Time between consecutive tokens in seconds',
    TOKEN_SECONDS,
  )
  readonly perTokenSeconds = this.#histogram(
    'vllm:request_time_per_output_token_seconds',
    'Mean time per output token of a request, excluding the first, in seconds',
    TOKEN_SECONDS,
  )
  readonly requestSeconds = this.#histogram(
    'vllm:e2e_request_latency_seconds',
    'End-to-end request latency in seconds',
    REQUEST_SECONDS,
  )
  readonly promptTokens = this.#histogram('vllm:request_prompt_tokens', 'Prompt tokens per request', TOKENS)
  readonly generationTokens = this.#histogram(
    'vllm:request_generation_tokens',
    'Generated tokens per request',
    TOKENS,
  )
  readonly promptTokensTaken = this.#counter(
    'vllm:prompt_tokens_total',
    'Prompt tokens of started requests, including cached and fetched ones',
  )
  readonly transferSeconds = this.#histogram(
    'vllm:nixl_xfer_time_seconds',
    'Time to read the KV blocks of a hand-off, in seconds',
    TRANSFER_SECONDS,
  )
  readonly transferBytes = this.#counter(
    'vllm:nixl_bytes_transferred_total',
    'Bytes of KV blocks read from prefill workers',
  )
  readonly transfersFailed = this.#counter(
    'vllm:nixl_num_failed_transfers_total',
    'Hand-offs whose KV blocks could not be read',
  )
  readonly leasesExpired = this.#counter(
    'vllm:nixl_num_kv_expired_reqs_total',
    'Hand-offs whose lease expired before a decode worker read them',
  )
  readonly badFrames = this.#counter(
    'eldr_kv_bad_frames_total',
    'Connections of the KV side channel closed because of an invalid frame',
  )
  readonly clientsGone = this.#counter('eldr_clients_gone_total', 'Requests whose client left before the end')
  readonly clientsStalled = this.#counter(
    'eldr_clients_stalled_total',
    'Streams ended because the client did not read for too long',
  )

  constructor({ engine, model, rank, kv }: MetricsSource) {
    this.registry.setDefaultLabels({ model_name: model, engine: String(rank) })
    for (const [name, help, of] of ENGINE_GAUGES) this.#gauge(name, help, set => set(of(engine.stats())))
    for (const [name, help, of] of ENGINE_COUNTERS) this.#readCounter(name, help, of, engine)
    this.#gauge(
      'eldr_active_experts',
      'Distinct experts of the last decode step',
      (_, set) => {
        engine.stats().activePerLayer.forEach((active, layer) => set({ layer: String(layer) }, active))
      },
      ['layer'],
    )
    this.#gauge(
      'vllm:num_requests_waiting_by_reason',
      'Waiting requests by reason',
      (_, set) => {
        const { waiting, fetching } = engine.stats()
        set({ reason: 'capacity' }, waiting - fetching)
        set({ reason: 'deferred' }, fetching)
      },
      ['reason'],
    )
    const success: Counter = new Counter({
      name: 'vllm:request_success_total',
      help: 'Finished requests by reason',
      labelNames: ['finished_reason'],
      registers: [this.registry],
      collect() {
        success.reset()
        const { stop, length, aborted, failed } = engine.stats().finished
        for (const [reason, count] of Object.entries({ stop, length, abort: aborted, error: failed }))
          success.inc({ finished_reason: reason }, count)
      },
    })
    this.#gauge('eldr_kv_leases', 'Hand-offs waiting to be read', set => set(kv()?.leases ?? 0))
    this.#gauge('eldr_kv_leased_blocks', 'KV blocks held by hand-offs', set => set(kv()?.leasedBlocks ?? 0))
    this.#gauge('eldr_kv_connections', 'Connections of the KV side channel', set =>
      set(kv()?.connections ?? 0),
    )
    this.#gauge(
      'process_start_time_seconds',
      'Start time of the process in seconds since the Unix epoch',
      set => set(STARTED_SECONDS),
    )
    this.#gauge('process_resident_memory_bytes', 'Resident memory in bytes', set =>
      set(process.memoryUsage.rss()),
    )
    this.#readCounter('process_cpu_seconds_total', 'CPU time in seconds', () => cpuSeconds(), engine)
  }

  #gauge(
    name: string,
    help: string,
    collect: (
      set: (value: number) => void,
      setWith: (labels: Record<string, string>, value: number) => void,
    ) => void,
    labelNames: string[] = [],
  ): void {
    const gauge: Gauge = new Gauge({
      name,
      help,
      labelNames,
      registers: [this.registry],
      collect: () =>
        collect(
          value => gauge.set(value),
          (labels, value) => gauge.set(labels, value),
        ),
    })
  }

  /** A counter whose value is kept elsewhere. */
  #readCounter(
    name: string,
    help: string,
    of: (stats: EngineStats) => number,
    engine: MetricsSource['engine'],
  ): void {
    const counter: Counter = new Counter({
      name,
      help,
      registers: [this.registry],
      collect() {
        counter.reset()
        counter.inc(of(engine.stats()))
      },
    })
  }

  #counter(name: string, help: string): Counter {
    return new Counter({ name, help, registers: [this.registry] })
  }

  #histogram(name: string, help: string, buckets: readonly number[]): Histogram {
    return new Histogram({ name, help, buckets: [...buckets], registers: [this.registry] })
  }
}

type EngineMetric = readonly [name: string, help: string, of: (stats: EngineStats) => number]

const ENGINE_GAUGES: readonly EngineMetric[] = [
  ['vllm:num_requests_running', 'Requests in the running batch', ({ running }) => running],
  ['vllm:num_requests_waiting', 'Requests waiting for capacity or for remote KV', ({ waiting }) => waiting],
  ['vllm:kv_cache_usage_perc', 'Share of KV blocks in use (1 = all)', ({ kvUsage }) => kvUsage],
  ['eldr_decode_batch', 'Sequences of the last decode step', ({ batch }) => batch],
  [
    'eldr_active_experts_mean',
    'Distinct experts of the last decode step, mean over layers',
    ({ active }) => active,
  ],
  ['eldr_kv_blocks_free', 'Free KV blocks, including cached ones', ({ blocksFree }) => blocksFree],
  ['eldr_signature_rows', 'Rows of the signature cache in use', ({ signatureRows }) => signatureRows],
]

const ENGINE_COUNTERS: readonly EngineMetric[] = [
  [
    'eldr_prompt_tokens_computed_total',
    'Prompt tokens computed by this worker',
    ({ promptTokens }) => promptTokens,
  ],
  ['vllm:generation_tokens_total', 'Generated tokens', ({ generationTokens }) => generationTokens],
  [
    'vllm:prefix_cache_queries_total',
    'Tokens looked up in the prefix cache',
    ({ prefixQueries }) => prefixQueries,
  ],
  ['vllm:prefix_cache_hits_total', 'Tokens found in the prefix cache', ({ prefixHits }) => prefixHits],
  ['vllm:num_preemptions_total', 'Preempted requests', ({ preemptions }) => preemptions],
  ['eldr_decode_steps_total', 'Decode steps', ({ decodeSteps }) => decodeSteps],
]

const STARTED_SECONDS = Date.now() / 1000 - process.uptime()

function cpuSeconds(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1e6
}
