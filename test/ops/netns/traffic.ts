/** Steady requests from the client's machine to both gateways, and their outcomes. */
import { until } from './until.ts'
import type { Outcome } from './agent.ts'
import { type Cluster, GATEWAYS, type GatewayName } from './cluster.ts'

export interface TrafficShape {
  readonly lanesEach?: number
  readonly tokens?: number
  readonly timeoutMs?: number
}

/** Above the gateway's own limit (`requestMs`): a request that has not ended by then hangs. */
const TIMEOUT_MS = 16_000

export class Traffic {
  readonly #cluster: Cluster
  #all: Outcome[] = []

  private constructor(cluster: Cluster) {
    this.#cluster = cluster
  }

  static async start(
    cluster: Cluster,
    { lanesEach = 3, tokens = 12, timeoutMs = TIMEOUT_MS }: TrafficShape = {},
  ): Promise<Traffic> {
    await cluster.client.start({ gateways: gatewayUrls(cluster), lanesEach, tokens, timeoutMs })
    return new Traffic(cluster)
  }

  /** Outcomes so far. */
  get all(): readonly Outcome[] {
    return this.#all
  }

  /** Waits until `each` further requests have ended on each gateway, and returns them. */
  async next(each: number, of: readonly GatewayName[] = GATEWAYS): Promise<Outcome[]> {
    this.#all.push(...(await this.#cluster.client.take()))
    const found: Outcome[] = []
    await until(`${each} responses from each of ${of.join()}`, async () => {
      found.push(...(await this.#cluster.client.take()))
      return of.every(name => found.filter(({ gateway }) => gateway === name).length >= each)
    })
    this.#all.push(...found)
    return found
  }

  /** Stops sending, waits for the last request and returns all outcomes. */
  async stop(): Promise<readonly Outcome[]> {
    this.#all.push(...(await this.#cluster.client.stop()))
    return this.#all
  }
}

function gatewayUrls(cluster: Cluster): Record<string, string> {
  return Object.fromEntries(GATEWAYS.map(name => [name, cluster.url(name)]))
}

/** Number of requests by outcome: { ok: 93, 'error ELDR_STREAM_STALLED': 2 }. */
export function ends(outcomes: readonly Outcome[]): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const { end, code } of outcomes) {
    const name = end === 'ok' ? end : `${end} ${code}`
    counts[name] = (counts[name] ?? 0) + 1
  }
  return counts
}

export const of = (gateway: GatewayName, outcomes: readonly Outcome[]) =>
  outcomes.filter(outcome => outcome.gateway === gateway)

/** Outcomes other than `ok`, for comparison in tests. */
export const notOk = (outcomes: readonly Outcome[]) => ends(outcomes.filter(({ end }) => end !== 'ok'))

/**
 * Outcomes that are neither complete nor a proper error. There must be none while the client is reachable.
 */
export const unexpected = (outcomes: readonly Outcome[]) =>
  ends(outcomes.filter(({ end }) => end !== 'ok' && end !== 'error'))

export function medianMs(outcomes: readonly Outcome[]): number {
  const times = outcomes.map(({ totalMs }) => totalMs).sort((a, b) => a - b)
  return times[times.length >> 1] ?? NaN
}

/** Prints measurements of a run in one line. */
export function note(what: string, figures: Readonly<Record<string, unknown>>): void {
  const words = Object.entries(figures).map(
    ([name, value]) => `${name} ${typeof value === 'number' ? Math.round(value) : JSON.stringify(value)}`,
  )
  process.stdout.write(`  ${what}: ${words.join(', ')}\n`)
}
