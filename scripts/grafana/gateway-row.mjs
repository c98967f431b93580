// The process itself.
import { graph, of, rate, stat, sum } from './panel.mjs'

const each = (metric, more) => [{ expr: of(metric, more), legend: '{{instance}}' }]

export const gateway = {
  title: 'Gateway',
  panels: [
    stat(
      'Ticket leaks',
      'none',
      'Requests that were counted on a worker and never taken off: a fault of the gateway. Must be 0.',
      `sum(${of('eldr_ticket_leaks_total')})`,
      { thresholds: [[1, 'red']] },
    ),
    stat(
      'Double releases',
      'none',
      'Requests that were taken off twice: a fault of the gateway. Must be 0.',
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
      'Retries that may be made now; 0 means that nothing is tried again.',
      `min(${of('eldr_retry_budget')})`,
    ),
    stat('Started', 's', 'Since the youngest gateway was started.', `min(${of('eldr_uptime_seconds')})`),
    stat('Release', 'none', 'Gateways by release and version of Node.', [
      { expr: sum('version, node', of('eldr_build_info')), legend: '{{version}} (Node {{node}})' },
    ]),
    graph(
      'Event loop: delay',
      's',
      '99th percentile of the last 15 to 30 seconds. Every token waits for it.',
      each('eldr_event_loop_delay_p99_seconds'),
    ),
    graph(
      'Event loop: share of a core',
      'percentunit',
      'At 1 the gateway can do no more: start another.',
      [{ expr: rate(of('eldr_event_loop_busy_seconds_total')), legend: '{{instance}}' }],
      { max: 1 },
    ),
    graph('CPU', 'percentunit', 'Cores that the process takes, threads of re-fits included.', [
      { expr: rate(of('process_cpu_seconds_total')), legend: '{{instance}}' },
    ]),
    graph('Memory', 'bytes', 'Resident, and the heap in use.', [
      { expr: of('process_resident_memory_bytes'), legend: '{{instance}} resident' },
      { expr: of('nodejs_heap_size_used_bytes'), legend: '{{instance}} heap' },
    ]),
    graph('Garbage collection', 'percentunit', 'Share of the time.', [
      { expr: sum('instance', rate(of('nodejs_gc_duration_seconds_sum'))), legend: '{{instance}}' },
    ]),
    graph('Open files', 'none', 'Beside what the system allows.', [
      { expr: of('process_open_fds'), legend: '{{instance}} open' },
      { expr: of('process_max_fds'), legend: '{{instance}} limit' },
    ]),
    graph('Connections of clients', 'none', 'Open now.', each('eldr_client_connections')),
    graph('New connections', 'cps', 'A second. Near the number of requests: clients do not keep theirs.', [
      { expr: rate(of('eldr_client_connections_total')), legend: '{{instance}}' },
    ]),
    graph('Bytes of clients', 'Bps', 'Received and sent.', [
      { expr: sum('direction', rate(of('eldr_client_bytes_total'))), legend: '{{direction}}' },
    ]),
    graph('Tickets', 'none', 'Requests on workers. Falls to 0 when nothing runs.', [
      { expr: sum('leg', of('eldr_tickets')), legend: '{{leg}}' },
    ]),
    graph(
      'Replicas',
      'none',
      'Gateways that each knows of, itself included, and requests of the others on its workers.',
      [
        { expr: of('eldr_replicas'), legend: '{{instance}} knows of' },
        { expr: sum('instance', of('eldr_worker_inflight_elsewhere')), legend: '{{instance}} elsewhere' },
      ],
    ),
    graph('Bytes between replicas', 'Bps', 'Through the store that they share.', [
      {
        expr: sum('instance, direction', rate(of('eldr_replica_bytes_total'))),
        legend: '{{instance}} {{direction}}',
      },
    ]),
    graph('Requests of all routes', 'reqps', 'Admin, dashboard and pages included.', [
      { expr: sum('route', rate(of('eldr_requests_total'))), legend: '{{route}}' },
    ]),
    graph('Hand-offs given back', 'ops', 'Because their client had left between the legs.', [
      { expr: rate(of('eldr_handoffs_released_total')), legend: '{{instance}}' },
    ]),
  ],
}
