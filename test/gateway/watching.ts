/** What tests of failures look at: every dispatch ends once, nothing is left over, and counts as whoever scrapes the gateway sees them. */
import { expect } from 'vitest'
import { readSamples } from '../../src/cluster/metrics-text.ts'
import type { Dispatch } from '../../src/cluster/registry.ts'
import type { Cluster } from './cluster.ts'

const rejections: unknown[] = []
process.on('unhandledRejection', reason => rejections.push(reason))

/** Promises that failed and that nobody waited for. */
export function forgotten(): readonly unknown[] {
  return rejections
}

/** Stops it, and fails when a promise was forgotten. */
export async function stopCluster(cluster: Cluster): Promise<void> {
  await cluster.stop()
  if (rejections.length > 0) throw new Error(`promises were forgotten: ${rejections.map(String).join(', ')}`)
}

export interface TicketWatch {
  /** Each request to a worker, in the order of the decisions, with the ends that it was told. */
  readonly dispatches: readonly {
    readonly worker: string
    readonly leg: string
    readonly ends: ('succeeded' | 'failed' | 'ignored')[]
  }[]
  /** Nothing is under way, and everything that was has ended once. */
  settled(): Promise<void>
}

/** Of a gateway that cannot be looked into: what it says of its tickets. */
export function tellTickets(cluster: Cluster): Pick<TicketWatch, 'settled'> {
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
    const told = (end: 'succeeded' | 'failed' | 'ignored', then: () => void) => {
      seen.ends.push(end)
      then()
    }
    return {
      worker: given.worker,
      index: given.index,
      succeeded: nowMs => told('succeeded', () => given.succeeded(nowMs)),
      failed: nowMs => told('failed', () => given.failed(nowMs)),
      ignored: () => told('ignored', () => given.ignored()),
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

/** Sum of a metric's samples with these labels, as /metrics gives them. */
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

/** For what nobody announces: looks after every turn of the event loop, and gives up loudly. */
export async function eventually(
  holds: () => boolean | Promise<boolean>,
  what = String(holds),
): Promise<void> {
  const untilMs = performance.now() + 10_000
  while (!(await holds())) {
    if (performance.now() > untilMs) throw new Error(`not within 10 s: ${what}`)
    await new Promise(setImmediate)
  }
}

/** A promise, and what keeps it. */
export function gate(): { readonly opened: Promise<void>; open(): void } {
  let open = () => {}
  const opened = new Promise<void>(resolve => (open = resolve))
  return { opened, open: () => open() }
}
