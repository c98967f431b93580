// Health and load of the workers. The last panels show the workers' own metrics.
import { graph, of, ofWorkers, own, rate, stat, states, sum } from './panel.mjs'

const STATES = {
  0: { text: 'unknown', color: 'gray' },
  1: { text: 'ready', color: 'green' },
  2: { text: 'draining', color: 'blue' },
  3: { text: 'open', color: 'orange' },
  4: { text: 'unhealthy', color: 'red' },
}
const BREAKERS = {
  0: { text: 'closed', color: 'green' },
  1: { text: 'half-open', color: 'orange' },
  2: { text: 'open', color: 'red' },
}
const state = (name, value) =>
  `max by (worker) (${ofWorkers('eldr_worker_state', `state="${name}"`)}) * ${value}`

export const workers = {
  title: 'Workers',
  panels: [
    stat('Ready', 'none', 'Workers in rotation, by leg.', [
      { expr: `max by (leg) (${of('eldr_workers_ready')})`, legend: '{{leg}}' },
    ]),
    stat('Registered', 'none', 'Registered workers, by leg.', [
      { expr: `max by (leg) (${of('eldr_workers')})`, legend: '{{leg}}' },
    ]),
    stat(
      'Failures',
      'ops',
      'Failed legs per second.',
      `sum(${rate(ofWorkers('eldr_leg_failures_total'))}) or vector(0)`,
      {
        thresholds: [
          [0.1, 'orange'],
          [1, 'red'],
        ],
      },
    ),
    stat('Retries', 'ops', 'Retries per second.', `sum(${rate(of('eldr_retries_total'))}) or vector(0)`),
    stat(
      'Restarts',
      'none',
      'Worker restarts detected within the last hour.',
      `sum(increase(${ofWorkers('eldr_worker_restarts_total')}[1h]))`,
      { decimals: 0 },
    ),
    stat(
      'Leases missed',
      'none',
      'Hand-offs within the last hour that were too old to use.',
      `sum(increase(${of('eldr_leases_missed_total')}[1h]))`,
      { decimals: 0 },
    ),
    states(
      'State',
      'none',
      'Worker state as the gateway sees it.',
      [
        {
          expr: ['ready', 'draining', 'open', 'unhealthy'].map((name, at) => state(name, at + 1)).join(' + '),
          legend: '{{worker}}',
        },
      ],
      { mappings: STATES },
    ),
    states(
      'Breaker',
      'none',
      'Open: the worker failed too often and gets no requests for a while.',
      [{ expr: `max by (worker) (${ofWorkers('eldr_worker_breaker_state')})`, legend: '{{worker}}' }],
      { mappings: BREAKERS },
    ),
    graph('Requests on workers', 'none', 'Requests in flight, summed over all gateways.', [
      { expr: sum('worker, leg', ofWorkers('eldr_worker_inflight')), legend: '{{worker}}' },
    ]),
    graph('Prompt tokens on workers', 'none', 'Prompt tokens of the requests in flight.', [
      { expr: sum('worker, leg', ofWorkers('eldr_worker_inflight_tokens')), legend: '{{worker}}' },
    ]),
    graph('Requests sent', 'reqps', 'Attempts of both legs.', [
      { expr: sum('worker, leg', rate(ofWorkers('eldr_worker_requests_total'))), legend: '{{worker}}' },
    ]),
    graph('Failures by kind', 'ops', 'Failed legs by worker and kind.', [
      {
        expr: sum('worker, leg, kind', rate(ofWorkers('eldr_leg_failures_total'))),
        legend: '{{worker}} {{kind}}',
      },
    ]),
    graph('Failed health checks', 'ops', 'Failed health checks by worker.', [
      {
        expr: sum('worker', rate(ofWorkers('eldr_health_checks_total', 'result="failed"'))),
        legend: '{{worker}}',
      },
    ]),
    graph(
      'Speed',
      's',
      'Last ten seconds: mean time between tokens on decode workers, mean time per prompt on prefill workers.',
      [{ expr: `avg by (worker, leg) (${ofWorkers('eldr_worker_recent_seconds')})`, legend: '{{worker}}' }],
    ),
    graph(
      'Learnt cost of a step',
      's',
      'What union expects of a decode step: an empty batch, each active expert (all layers), each request. Their proportion is mostly that of the profile.',
      [
        { expr: `avg by (worker) (${ofWorkers('eldr_step_cost_base_seconds')})`, legend: '{{worker}} base' },
        {
          expr: `avg by (worker) (${ofWorkers('eldr_step_cost_per_expert_seconds')})`,
          legend: '{{worker}} per expert',
        },
        {
          expr: `avg by (worker) (${ofWorkers('eldr_step_cost_per_request_seconds')})`,
          legend: '{{worker}} per request',
        },
      ],
    ),
    graph(
      'Learnt time of a step over the cluster’s',
      'none',
      'Under union, for the same batch: a worker at 1.5 takes 1.5 times as long as the cluster.',
      [{ expr: `avg by (worker) (${ofWorkers('eldr_step_cost_speed_ratio')})`, legend: '{{worker}}' }],
    ),
    graph('Connections to workers', 'none', 'Busy and idle connections.', [
      { expr: sum('state, leg', ofWorkers('eldr_worker_connections')), legend: '{{leg}} {{state}}' },
    ]),
    graph('Worker traffic', 'Bps', 'HTTP only; KV blocks go from worker to worker.', [
      {
        expr: sum('worker, direction', rate(ofWorkers('eldr_worker_bytes_total'))),
        legend: '{{worker}} {{direction}}',
      },
    ]),
    graph('Retries by cause', 'ops', 'Retries by leg and cause.', [
      { expr: sum('leg, cause', rate(of('eldr_retries_total'))), legend: '{{leg}} {{cause}}' },
    ]),
    graph(
      'Active experts per step',
      'none',
      'Distinct experts of a decode step, averaged over layers, as reported by decode workers (embedded, or vLLM with eldr-vllm). ELDR keeps it low.',
      [{ expr: `avg by (worker) (${own('eldr_active_experts')})`, legend: '{{worker}}' }],
    ),
    graph('Decode batch', 'none', 'Sequences per decode step, as reported by workers.', [
      { expr: `avg by (worker) (${own('eldr_decode_batch')})`, legend: '{{worker}}' },
    ]),
    graph('Tokens generated', 'none', 'Per second, as reported by workers.', [
      { expr: sum('worker', rate(own('vllm:generation_tokens_total'))), legend: '{{worker}}' },
    ]),
    graph(
      'KV cache in use',
      'percentunit',
      'Share of KV blocks in use, as reported by workers.',
      [{ expr: `max by (worker) (${own('vllm:kv_cache_usage_perc')})`, legend: '{{worker}}' }],
      { max: 1 },
    ),
    graph(
      'Requests waiting on workers',
      'none',
      'Waiting for capacity or KV blocks, as reported by workers.',
      [{ expr: sum('worker', own('vllm:num_requests_waiting')), legend: '{{worker}}' }],
    ),
  ],
}
