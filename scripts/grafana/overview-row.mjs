// Availability, load, errors and speed as clients see them.
import { graph, of, quantiles, rate, stat, sum } from './panel.mjs'

const GENERATED = 'route=~"completions|chat"'
/** Failures not caused by the client. */
export const FAILED = 'outcome=~"failed|broken|timeout"'

export const overview = {
  title: 'Overview',
  panels: [
    stat('Gateways ready', 'none', 'Gateways that are ready, and all that are scraped.', [
      { expr: `sum(${of('eldr_ready')})`, legend: 'ready' },
      { expr: `count(${of('eldr_ready')})`, legend: 'all' },
    ]),
    stat(
      'Requests',
      'reqps',
      'Completed generation requests per second.',
      `sum(${rate(of('eldr_requests_total', GENERATED))})`,
    ),
    stat(
      'Error share',
      'percentunit',
      'Share of requests that failed, broke mid-stream or timed out. Client errors and disconnects do not count.',
      `sum(${rate(of('eldr_requests_total', `${GENERATED}, ${FAILED}`))}) / sum(${rate(of('eldr_requests_total', GENERATED))})`,
      {
        thresholds: [
          [0.01, 'orange'],
          [0.05, 'red'],
        ],
        decimals: 2,
      },
    ),
    stat('Running', 'none', 'Admitted requests that have not ended.', `sum(${of('eldr_running_requests')})`),
    stat('Waiting', 'none', 'Requests waiting in the queue.', `sum(${of('eldr_queue_length')})`, {
      thresholds: [
        [1, 'orange'],
        [100, 'red'],
      ],
    }),
    stat(
      'Output tokens',
      'none',
      'Tokens sent to clients per second.',
      `sum(${rate(of('eldr_tokens_total', 'kind="output"'))})`,
    ),
    graph(
      'Requests by outcome',
      'reqps',
      'Generation requests by how they ended.',
      [{ expr: sum('outcome', rate(of('eldr_requests_total', GENERATED))), legend: '{{outcome}}' }],
      { stacked: true },
    ),
    graph(
      'Error responses by code',
      'reqps',
      'Errors sent by the gateway itself; codes are in docs/reference/errors.md.',
      [{ expr: `${sum('code', rate(of('eldr_error_answers_total')))} > 0`, legend: '{{code}}' }],
    ),
    graph(
      'Running and waiting',
      'none',
      'Requests and their limit. Requests wait when the limit is reached.',
      [
        { expr: `sum(${of('eldr_running_requests')})`, legend: 'running' },
        { expr: `sum(${of('eldr_queue_length')})`, legend: 'waiting' },
        { expr: `sum(${of('eldr_running_requests_limit')})`, legend: 'limit' },
      ],
    ),
    graph(
      'Time to first token',
      's',
      'From the request to the first byte of its stream.',
      quantiles('eldr_time_to_first_token_seconds'),
    ),
    graph(
      'Time per output token',
      's',
      'Mean time between the tokens of a stream.',
      quantiles('eldr_inter_token_seconds'),
    ),
    graph('Request duration', 's', 'From the request to its end.', quantiles('eldr_request_seconds')),
    graph('Queue time', 's', 'How long requests waited for admission.', quantiles('eldr_queue_seconds')),
    graph('Prefill time', 's', 'Duration of the prefill leg.', quantiles('eldr_prefill_seconds')),
    graph('Tokens', 'none', 'Prompt tokens and output tokens per second.', [
      { expr: sum('kind', rate(of('eldr_tokens_total'))), legend: '{{kind}}' },
    ]),
  ],
}
