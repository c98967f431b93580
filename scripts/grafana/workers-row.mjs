// Is a worker sick, and who does how much. The last panels are what workers say themselves.
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
    stat('Ready', 'none', 'Workers that take requests now, by leg.', [
      { expr: `max by (leg) (${of('eldr_workers_ready')})`, legend: '{{leg}}' },
    ]),
    stat('Registered', 'none', 'Workers that the gateways know, by leg.', [
      { expr: `max by (leg) (${of('eldr_workers')})`, legend: '{{leg}}' },
    ]),
    stat(
      'Failures',
      'ops',
      'Legs that failed, in a second.',
      `sum(${rate(ofWorkers('eldr_leg_failures_total'))}) or vector(0)`,
      {
        thresholds: [
          [0.1, 'orange'],
          [1, 'red'],
        ],
      },
    ),
    stat(
      'Retries',
      'ops',
      'Second and later tries, in a second.',
      `sum(${rate(of('eldr_retries_total'))}) or vector(0)`,
    ),
    stat(
      'Restarts',
      'none',
      'Restarts of workers that were noticed within the last hour.',
      `sum(increase(${ofWorkers('eldr_worker_restarts_total')}[1h]))`,
      { decimals: 0 },
    ),
    stat(
      'Leases missed',
      'none',
      'Hand-offs within the last hour that were too old to be used.',
      `sum(increase(${of('eldr_leases_missed_total')}[1h]))`,
      { decimals: 0 },
    ),
    states(
      'State',
      'none',
      'As the gateway sees it.',
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
      'Open: it failed so often that it is left alone for a while.',
      [{ expr: `max by (worker) (${ofWorkers('eldr_worker_breaker_state')})`, legend: '{{worker}}' }],
      { mappings: BREAKERS },
    ),
    graph('Requests on workers', 'none', 'Sent there and not ended, over all gateways.', [
      { expr: sum('worker, leg', ofWorkers('eldr_worker_inflight')), legend: '{{worker}}' },
    ]),
    graph('Prompt tokens on workers', 'none', 'Of the requests that are there.', [
      { expr: sum('worker, leg', ofWorkers('eldr_worker_inflight_tokens')), legend: '{{worker}}' },
    ]),
    graph('Requests sent', 'reqps', 'Each try of each leg.', [
      { expr: sum('worker, leg', rate(ofWorkers('eldr_worker_requests_total'))), legend: '{{worker}}' },
    ]),
    graph('Failures by kind', 'ops', 'Legs that failed, by worker and kind.', [
      {
        expr: sum('worker, leg, kind', rate(ofWorkers('eldr_leg_failures_total'))),
        legend: '{{worker}} {{kind}}',
      },
    ]),
    graph('Failed health checks', 'ops', 'Of the checks that the gateways make.', [
      {
        expr: sum('worker', rate(ofWorkers('eldr_health_checks_total', 'result="failed"'))),
        legend: '{{worker}}',
      },
    ]),
    graph(
      'Speed',
      's',
      'Mean time between tokens on decode workers, mean time of a prompt on prefill workers, of the last ten seconds.',
      [{ expr: `avg by (worker, leg) (${ofWorkers('eldr_worker_recent_seconds')})`, legend: '{{worker}}' }],
    ),
    graph('Connections to workers', 'none', 'Busy with a request, or idle.', [
      { expr: sum('state, leg', ofWorkers('eldr_worker_connections')), legend: '{{leg}} {{state}}' },
    ]),
    graph('Bytes to and from workers', 'Bps', 'Of HTTP; KV blocks go from worker to worker.', [
      {
        expr: sum('worker, direction', rate(ofWorkers('eldr_worker_bytes_total'))),
        legend: '{{worker}} {{direction}}',
      },
    ]),
    graph('Retries by cause', 'ops', 'Second and later tries of a leg.', [
      { expr: sum('leg, cause', rate(of('eldr_retries_total'))), legend: '{{leg}} {{cause}}' },
    ]),
    graph(
      'Active experts per step',
      'none',
      'Distinct experts of a decode step, mean over layers, as decode workers tell (embedded ones, and vLLM with eldr-vllm). ELDR is there to keep it low.',
      [{ expr: `avg by (worker) (${own('eldr_active_experts')})`, legend: '{{worker}}' }],
    ),
    graph('Decode batch', 'none', 'Sequences of a decode step, as workers tell.', [
      { expr: `avg by (worker) (${own('eldr_decode_batch')})`, legend: '{{worker}}' },
    ]),
    graph('Tokens generated', 'none', 'In a second, as workers tell.', [
      { expr: sum('worker', rate(own('vllm:generation_tokens_total'))), legend: '{{worker}}' },
    ]),
    graph(
      'KV cache in use',
      'percentunit',
      'Share of the KV blocks, as workers tell.',
      [{ expr: `max by (worker) (${own('vllm:kv_cache_usage_perc')})`, legend: '{{worker}}' }],
      { max: 1 },
    ),
    graph('Requests that wait on workers', 'none', 'For room, or for their KV blocks, as workers tell.', [
      { expr: sum('worker', own('vllm:num_requests_waiting')), legend: '{{worker}}' },
    ]),
  ],
}
