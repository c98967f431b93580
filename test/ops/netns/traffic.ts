/** Steady requests from the client's machine to both gateways, and what became of them. */
import { until } from './until.ts'
import type { Outcome } from './agent.ts'
import { type Cluster, GATEWAYS, type GatewayName } from './cluster.ts'

export interface TrafficShape {
  readonly lanesEach?: number
  readonly tokens?: number
  readonly patienceMs?: number
}

/** Above the longest that a gateway may take (`requestMs`): what has not ended by then hangs. */
const PATIENCE_MS = 16_000

export class Traffic {
  readonly #cluster: Cluster
  #all: Outcome[] = []

  private constructor(cluster: Cluster) {
    this.#cluster = cluster
  }

  static async start(
    cluster: Cluster,
    { lanesEach = 3, tokens = 12, patienceMs = PATIENCE_MS }: TrafficShape = {},
  ): Promise<Traffic> {
    await cluster.client.start({ gateways: gatewayUrls(cluster), lanesEach, tokens, patienceMs })
    return new Traffic(cluster)
  }

  /** All that has ended so far. */
  get all(): readonly Outcome[] {
    return this.#all
  }

  /** Those that end from now on, until there are so many of each gateway. */
  async next(each: number, of: readonly GatewayName[] = GATEWAYS): Promise<Outcome[]> {
    this.#all.push(...(await this.#cluster.client.take()))
    const found: Outcome[] = []
    await until(`${each} answers of each of ${of.join()}`, async () => {
      found.push(...(await this.#cluster.client.take()))
      return of.every(name => found.filter(({ gateway }) => gateway === name).length >= each)
    })
    this.#all.push(...found)
    return found
  }

  /** All of the whole time, once the last has ended. */
  async stop(): Promise<readonly Outcome[]> {
    this.#all.push(...(await this.#cluster.client.stop()))
    return this.#all
  }
}

function gatewayUrls(cluster: Cluster): Record<string, string> {
  return Object.fromEntries(GATEWAYS.map(name => [name, cluster.url(name)]))
}

/** How often each end was met: { ok: 93, 'told ELDR_STREAM_STALLED': 2 }. */
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

/** Ends that are not all right, as a test shows them. */
export const notOk = (outcomes: readonly Outcome[]) => ends(outcomes.filter(({ end }) => end !== 'ok'))

/** What neither came whole nor was told in words: of a client that can be reached there is none. */
export const untold = (outcomes: readonly Outcome[]) =>
  ends(outcomes.filter(({ end }) => end !== 'ok' && end !== 'told'))

export function medianMs(outcomes: readonly Outcome[]): number {
  const times = outcomes.map(({ totalMs }) => totalMs).sort((a, b) => a - b)
  return times[times.length >> 1] ?? NaN
}

/** What was seen, for the page that tells of it. One line, so that a run can be read. */
export function note(what: string, figures: Readonly<Record<string, unknown>>): void {
  const words = Object.entries(figures).map(
    ([name, value]) => `${name} ${typeof value === 'number' ? Math.round(value) : JSON.stringify(value)}`,
  )
  process.stdout.write(`  ${what}: ${words.join(', ')}\n`)
}
