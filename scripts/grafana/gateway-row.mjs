// The gateway process.
import { graph, of, rate, stat, sum } from './panel.mjs'

const each = (metric, more) => [{ expr: of(metric, more), legend: '{{instance}}' }]

export const gateway = {
  title: 'Gateway',
  panels: [
    stat(
      'Ticket leaks',
      'none',
      'Requests counted on a worker and never released: a bug. Must be 0.',
      `sum(${of('eldr_ticket_leaks_total')})`,
      { thresholds: [[1, 'red']] },
    ),
    stat(
      'Double releases',
      'none',
      'Requests released twice: a bug. Must be 0.',
      `sum(${of('eldr_ticket_double_releases_total')})`,
      { thresholds: [[1, 'red']] },
    ),
    stat(
      'Oldest ticket',
      's',
      'Age of the oldest request on a worker.',
      `max(${of('eldr_oldest_ticket_seconds')})`,
    ),
    stat(
      'Retry budget',
      'none',
      'Retries available now; at 0 nothing is retried.',
      `min(${of('eldr_retry_budget')})`,
    ),
    stat('Uptime', 's', 'Of the gateway that started last.', `min(${of('eldr_uptime_seconds')})`),
    stat('Release', 'none', 'Gateways by release and Node version.', [
      { expr: sum('version, node', of('eldr_build_info')), legend: '{{version}} (Node {{node}})' },
    ]),
    graph(
      'Event loop delay',
      's',
      '99th percentile of the last 15 to 30 seconds. It delays every token.',
      each('eldr_event_loop_delay_p99_seconds'),
    ),
    graph(
      'Event loop utilization',
      'percentunit',
      'Share of a core, summed over the processes of a gateway. At 1 per process it is saturated: add processes or gateways.',
      [{ expr: rate(of('eldr_event_loop_busy_seconds_total')), legend: '{{instance}}' }],
      { max: 1 },
    ),
    graph('CPU', 'percentunit', 'Cores used by the process, including refit threads.', [
      { expr: rate(of('process_cpu_seconds_total')), legend: '{{instance}}' },
    ]),
    graph('Memory', 'bytes', 'Resident memory and heap in use.', [
      { expr: of('process_resident_memory_bytes'), legend: '{{instance}} resident' },
      { expr: of('nodejs_heap_size_used_bytes'), legend: '{{instance}} heap' },
    ]),
    graph('Garbage collection', 'percentunit', 'Share of time spent in garbage collection.', [
      { expr: sum('instance', rate(of('nodejs_gc_duration_seconds_sum'))), legend: '{{instance}}' },
    ]),
    graph('Open files', 'none', 'Open file descriptors and their limit.', [
      { expr: of('process_open_fds'), legend: '{{instance}} open' },
      { expr: of('process_max_fds'), legend: '{{instance}} limit' },
    ]),
    graph('Client connections', 'none', 'Open client connections.', each('eldr_client_connections')),
    graph(
      'New connections',
      'cps',
      'Per second. If close to the request rate, clients do not reuse connections.',
      [{ expr: rate(of('eldr_client_connections_total')), legend: '{{instance}}' }],
    ),
    graph('Client traffic', 'Bps', 'Bytes received from and sent to clients.', [
      { expr: sum('direction', rate(of('eldr_client_bytes_total'))), legend: '{{direction}}' },
    ]),
    graph('Tickets', 'none', 'Requests counted on workers. 0 when nothing runs.', [
      { expr: sum('leg', of('eldr_tickets')), legend: '{{leg}}' },
    ]),
    graph(
      'Replicas',
      'none',
      'Gateways that each one knows, including itself, and requests of the others on its workers.',
      [
        { expr: of('eldr_replicas'), legend: '{{instance}} replicas' },
        { expr: sum('instance', of('eldr_worker_inflight_elsewhere')), legend: '{{instance}} elsewhere' },
      ],
    ),
    graph('Replica traffic', 'Bps', 'Bytes through the shared store.', [
      {
        expr: sum('instance, direction', rate(of('eldr_replica_bytes_total'))),
        legend: '{{instance}} {{direction}}',
      },
    ]),
    graph('Requests by route', 'reqps', 'All routes, including admin API and dashboard.', [
      { expr: sum('route', rate(of('eldr_requests_total'))), legend: '{{route}}' },
    ]),
    graph(
      'Conversations',
      'reqps',
      'Turns of known conversations: kept on their decode worker, alone there without prefill, or moved.',
      [{ expr: sum('outcome', rate(of('eldr_conversation_turns_total'))), legend: '{{outcome}}' }],
    ),
    graph('Hand-offs released', 'ops', 'Because the client disconnected between the legs.', [
      { expr: rate(of('eldr_handoffs_released_total')), legend: '{{instance}}' },
    ]),
  ],
}
