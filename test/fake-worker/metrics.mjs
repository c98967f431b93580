// vLLM's metrics that a router may read, from the worker's counters.

/** @param {import('./fake-worker.mjs').FakeWorker} worker */
export function metricsText({ counters, tokens, settings, ranks }) {
  const labels = `engine="0",model_name="${settings.model}"`
  const ended = counters.completed
  const rows = [
    ['gauge', 'num_requests_running', counters.active],
    ['gauge', 'num_requests_waiting', 0],
    ['gauge', 'kv_cache_usage_perc', Math.min(1, counters.active / 256)],
    ['counter', 'num_preemptions_total', 0],
    ['counter', 'prompt_tokens_total', tokens.prompt],
    ['counter', 'generation_tokens_total', tokens.generated],
    ['counter', 'prefix_cache_queries_total', tokens.prompt],
    ['counter', 'prefix_cache_hits_total', 0],
    ['counter', 'nixl_num_kv_expired_reqs_total', 0],
  ].map(([type, name, value]) => `# TYPE vllm:${name} ${type}\nvllm:${name}{${labels}} ${value}`)
  const success = `# TYPE vllm:request_success_total counter\nvllm:request_success_total{${labels},finished_reason="length"} ${ended}`
  const histograms = [
    ['time_to_first_token_seconds', ended, (ended * settings.firstTokenMs) / 1e3],
    ['inter_token_latency_seconds', tokens.generated, (tokens.generated * settings.gapMs) / 1e3],
    ['request_time_per_output_token_seconds', ended, (ended * settings.gapMs) / 1e3],
    ['e2e_request_latency_seconds', ended, (tokens.generated * settings.gapMs) / 1e3],
  ].map(([name, count, sum]) => {
    const lines = [
      `_bucket{${labels},le="+Inf"} ${count}`,
      `_count{${labels}} ${count}`,
      `_sum{${labels}} ${sum}`,
    ]
    return [`# TYPE vllm:${name} histogram`, ...lines.map(line => `vllm:${name}${line}`)].join('\n')
  })
  // Further engines have only this metric; counters of the server are reported for the first engine.
  if (ranks.length > 1)
    rows[0] = [
      '# TYPE vllm:num_requests_running gauge',
      ...ranks.map(
        ({ active }, rank) =>
          `vllm:num_requests_running{engine="${rank}",model_name="${settings.model}"} ${active}`,
      ),
    ].join('\n')
  return `${[...rows, success, ...histograms].join('\n')}\n`
}
