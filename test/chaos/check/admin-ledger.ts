/**
 * Changes that operators made, and what the gateways must show at the next quiet point: the last confirmed
 * one. Where the order is open, several values are possible: two gateways that could not reach the store, and
 * changes whose response was lost.
 */
export interface AdminChange {
  readonly gateway: string
  /** policy, tau, artifact, drain:d1 (shared by all gateways) or workers:d3 (of one gateway). */
  readonly field: string
  readonly value: string
}

/** Values by gateway and field. */
export type AdminView = Readonly<Record<string, Readonly<Record<string, string>>>>

interface Recorded extends AdminChange {
  confirmedMs?: number
}

/** A gateway that is killed sooner may not have published a change yet: no request waits for the store. */
const PUBLISHED_MS = 2_000

export class AdminLedger {
  #changes: Recorded[] = []
  /** Times at which a whole gateway was killed or restarted. */
  #restarts: { readonly gateway: string; readonly atMs: number }[] = []
  #storeFaults = 0
  #settled: AdminView
  /** What a gateway starts with, without a store. */
  readonly #configured: Readonly<Record<string, string>>
  confirmed = 0

  constructor(settled: AdminView, configured: Readonly<Record<string, string>>) {
    this.#settled = settled
    this.#configured = configured
  }

  /** Call before a change is sent. Without a response it stays open whether the change was made. */
  attempt(change: AdminChange): { made(atMs: number): void; refused(): void } {
    const recorded: Recorded = { ...change }
    this.#changes.push(recorded)
    return {
      made: atMs => {
        recorded.confirmedMs = atMs
        this.confirmed++
      },
      refused: () => void this.#changes.splice(this.#changes.indexOf(recorded), 1),
    }
  }

  gatewayRestarted(gateway: string, atMs: number): void {
    this.#restarts.push({ gateway, atMs })
  }

  /** The store, or the path of a gateway to it. */
  storeDisturbed(): void {
    this.#storeFaults++
  }

  /** Problems of what the gateways show; empty if every change is there. */
  problems(view: AdminView): [what: string, detail: string][] {
    const found: [string, string][] = []
    const gateways = Object.keys(view)
    for (const field of Object.keys(view[gateways[0]!] ?? {})) {
      const shown = gateways.map(name => view[name]?.[field] ?? '')
      const isShared = !field.startsWith('workers:')
      if (isShared && new Set(shown).size > 1)
        found.push([
          'gateways disagree',
          `${field}: ${gateways.map((name, at) => `${name} ${shown[at]}`).join(', ')}`,
        ])
      for (const [at, name] of gateways.entries()) {
        const possible = this.#possible(field, isShared ? undefined : name)
        if (!possible.has(shown[at]!))
          found.push([
            'lost admin change',
            `${field} at ${name} is ${shown[at]}, expected ${[...possible].join(' or ')}`,
          ])
      }
    }
    return found
  }

  /** The next quiet point is judged from here. */
  settle(view: AdminView): void {
    this.#settled = view
    this.#changes = []
    this.#restarts = []
    this.#storeFaults = 0
  }

  /** `gateway`: undefined for a field that all share. */
  #possible(field: string, gateway: string | undefined): Set<string> {
    const own = this.#changes.filter(
      change => change.field === field && (gateway === undefined || change.gateway === gateway),
    )
    const confirmed = own
      .filter(({ confirmedMs }) => confirmedMs !== undefined)
      .toSorted((a, b) => a.confirmedMs! - b.confirmedMs!)
    const open = own.filter(({ confirmedMs }) => confirmedMs === undefined).map(({ value }) => value)
    const before = Object.entries(this.#settled)
      .filter(([name]) => gateway === undefined || name === gateway)
      .map(([, fields]) => fields[field] ?? '')
    if (gateway !== undefined) {
      const restartMs = Math.max(-Infinity, ...this.#restartsOf(gateway))
      const kept = confirmed.filter(({ confirmedMs }) => confirmedMs! > restartMs)
      if (kept.length > 0) return new Set([kept.at(-1)!.value, ...open])
      return new Set([...(restartMs > -Infinity ? [this.#configured[field] ?? ''] : before), ...open])
    }
    const safe = confirmed.filter(change => !this.#mayBeLost(change))
    const isOrdered = this.#storeFaults === 0 && this.#restarts.length === 0
    const last = isOrdered
      ? confirmed.slice(-1)
      : [...new Set(confirmed.map(change => change.gateway))].flatMap(name =>
          // Of each gateway the last one, and those that stand if later ones were lost with it.
          confirmed
            .filter(change => change.gateway === name)
            .filter((_change, at, all) => all.slice(at + 1).every(later => this.#mayBeLost(later))),
        )
    return new Set([...last.map(({ value }) => value), ...(safe.length === 0 ? before : []), ...open])
  }

  #restartsOf(gateway: string): number[] {
    return this.#restarts.filter(restart => restart.gateway === gateway).map(({ atMs }) => atMs)
  }

  /** Its gateway ended before the change was in the store, as far as one can tell. */
  #mayBeLost({ gateway, confirmedMs }: Recorded): boolean {
    return this.#restartsOf(gateway).some(
      atMs => atMs >= confirmedMs! && (this.#storeFaults > 0 || atMs - confirmedMs! < PUBLISHED_MS),
    )
  }
}
