/**
 * Checks for tests of failures: every dispatch ends once, nothing is left over, and metrics as a scrape sees
 * them.
 */
import { expect } from 'vitest'
import { readSamples } from '../../src/cluster/metrics-text.ts'
import type { Dispatch } from '../../src/cluster/registry.ts'
import type { Cluster } from './cluster.ts'

const WAIT_MS = 120_000
const rejections: unknown[] = []
process.on('unhandledRejection', reason => rejections.push(reason))

/** Rejected promises that nothing awaited. */
export function unhandledRejections(): readonly unknown[] {
  return rejections
}

/** Stops the cluster. Fails if a promise was rejected and not awaited. */
export async function stopCluster(cluster: Cluster): Promise<void> {
  await cluster.stop()
  if (rejections.length > 0) throw new Error(`unhandled rejections: ${rejections.map(String).join(', ')}`)
}

export interface TicketWatch {
  /** Each dispatch to a worker, in the order of the decisions, with every end reported for it. */
  readonly dispatches: readonly {
    readonly worker: string
    readonly leg: string
    readonly ends: ('succeeded' | 'failed' | 'ignored')[]
  }[]
  /** Waits until nothing is in flight, then checks that every dispatch ended exactly once. */
  settled(): Promise<void>
}

/** For a gateway in other processes: checks tickets by its metrics. */
export function watchTicketMetrics(cluster: Cluster): Pick<TicketWatch, 'settled'> {
  return {
    async settled() {
      await cluster.idle()
      await eventually(
        async () =>
          (await metric(cluster, 'eldr_tickets')) + (await metric(cluster, 'eldr_running_requests')) === 0,
        'no tickets',
      )
      expect(await metric(cluster, 'eldr_ticket_leaks_total')).toBe(0)
      expect(await metric(cluster, 'eldr_ticket_double_releases_total')).toBe(0)
    },
  }
}

export function watchTickets(cluster: Cluster): TicketWatch {
  const { registry } = cluster.gateway.context
  const dispatches: { worker: string; leg: string; ends: ('succeeded' | 'failed' | 'ignored')[] }[] = []
  const dispatch = registry.dispatch.bind(registry)
  registry.dispatch = (...call) => {
    const given = dispatch(...call)
    if (given === undefined) return undefined
    const seen = {
      worker: given.worker.id,
      leg: call[0] as string,
      ends: [] as ('succeeded' | 'failed' | 'ignored')[],
    }
    dispatches.push(seen)
    const record = (end: 'succeeded' | 'failed' | 'ignored', then: () => void) => {
      seen.ends.push(end)
      then()
    }
    return {
      worker: given.worker,
      index: given.index,
      isCurrent: given.isCurrent,
      succeeded: nowMs => record('succeeded', () => given.succeeded(nowMs)),
      failed: nowMs => record('failed', () => given.failed(nowMs)),
      ignored: () => record('ignored', () => given.ignored()),
    } satisfies Dispatch
  }
  return {
    dispatches,
    async settled() {
      await cluster.idle()
      expect(dispatches.filter(({ ends }) => ends.length !== 1)).toEqual([])
      expect(await metric(cluster, 'eldr_ticket_leaks_total')).toBe(0)
    },
  }
}

/** Sum of a metric's samples with these labels, from /metrics. */
export async function metric(
  cluster: Cluster,
  name: string,
  labels: Readonly<Record<string, string>> = {},
): Promise<number> {
  return metricIn(await (await fetch(`${cluster.url}/metrics`)).text(), name, labels)
}

export function metricIn(text: string, name: string, labels: Readonly<Record<string, string>> = {}): number {
  let sum = 0
  for (const sample of readSamples(text, new Set([name]))) {
    if (Object.entries(labels).every(([label, value]) => sample.labels[label] === value)) sum += sample.value
  }
  return sum
}

/** For states without an event: checks after every turn of the event loop. The limit is a safety net. */
export async function eventually(
  holds: () => boolean | Promise<boolean>,
  what: string | (() => string) = String(holds),
): Promise<void> {
  const untilMs = Date.now() + WAIT_MS
  while (!(await holds())) {
    if (Date.now() > untilMs) {
      const text = typeof what === 'string' ? what : what()
      throw new Error(`not within ${WAIT_MS} ms: ${text}`)
    }
    await new Promise(setImmediate)
  }
}

/** A promise, and the function that resolves it. */
export function gate(): { readonly opened: Promise<void>; open(): void } {
  let open = () => {}
  const opened = new Promise<void>(resolve => (open = resolve))
  return { opened, open: () => open() }
}
