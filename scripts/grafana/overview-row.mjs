// Is it up, is it loaded, are clients served, and how fast.
import { graph, of, quantiles, rate, stat, sum } from './panel.mjs'

const GENERATED = 'route=~"completions|chat"'
/** Not the client's doing. */
export const FAILED = 'outcome=~"failed|broken|timeout"'

export const overview = {
  title: 'Overview',
  panels: [
    stat('Gateways ready', 'none', 'Gateways that answer /ready with 200, of those that are scraped.', [
      { expr: `sum(${of('eldr_ready')})`, legend: 'ready' },
      { expr: `count(${of('eldr_ready')})`, legend: 'all' },
    ]),
    stat(
      'Requests',
      'reqps',
      'Requests to generate that ended, in a second.',
      `sum(${rate(of('eldr_requests_total', GENERATED))})`,
    ),
    stat(
      'Error share',
      'percentunit',
      'Requests that failed, broke off or timed out. Those that clients got wrong, or left, are not in it.',
      `sum(${rate(of('eldr_requests_total', `${GENERATED}, ${FAILED}`))}) / sum(${rate(of('eldr_requests_total', GENERATED))})`,
      {
        thresholds: [
          [0.01, 'orange'],
          [0.05, 'red'],
        ],
        decimals: 2,
      },
    ),
    stat(
      'Running',
      'none',
      'Requests that have been let in and have not ended.',
      `sum(${of('eldr_running_requests')})`,
    ),
    stat('Waiting', 'none', 'Requests that wait to be let in.', `sum(${of('eldr_queue_length')})`, {
      thresholds: [
        [1, 'orange'],
        [100, 'red'],
      ],
    }),
    stat(
      'Output tokens',
      'none',
      'Tokens that clients got, in a second.',
      `sum(${rate(of('eldr_tokens_total', 'kind="output"'))})`,
    ),
    graph(
      'Requests by outcome',
      'reqps',
      'How requests to generate ended.',
      [{ expr: sum('outcome', rate(of('eldr_requests_total', GENERATED))), legend: '{{outcome}}' }],
      { stacked: true },
    ),
    graph(
      'Error answers by code',
      'reqps',
      'What the gateway itself told clients: docs/reference/errors.md has the codes.',
      [{ expr: `${sum('code', rate(of('eldr_error_answers_total')))} > 0`, legend: '{{code}}' }],
    ),
    graph(
      'Running and waiting',
      'none',
      'Beside the limits. Waiting means that there are more requests than may run.',
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
    graph('Whole requests', 's', 'From the request to its end.', quantiles('eldr_request_seconds')),
    graph(
      'Time in the queue',
      's',
      'How long requests waited to be let in.',
      quantiles('eldr_queue_seconds'),
    ),
    graph('Prefill', 's', 'Time of the prefill leg.', quantiles('eldr_prefill_seconds')),
    graph('Tokens', 'none', 'Tokens of prompts and tokens that clients got, in a second.', [
      { expr: sum('kind', rate(of('eldr_tokens_total'))), legend: '{{kind}}' },
    ]),
  ],
}
