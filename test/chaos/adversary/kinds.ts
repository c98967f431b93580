/** Everything that the adversary can do: how often, to what, and for how long. */
export interface Kind {
  readonly on:
    | 'worker'
    | 'gateway'
    | 'owner'
    | 'relay'
    | 'store'
    | 'path'
    | 'disk'
    | 'tls'
    | 'operator'
    | 'clients'
  readonly weight: number
  /** From and to, in milliseconds. Absent: over at once. */
  readonly forMs?: readonly [number, number]
}

export const KINDS = {
  'kill-worker': { on: 'worker', weight: 5, forMs: [500, 3_000] },
  'stop-worker': { on: 'worker', weight: 4, forMs: [800, 6_000] },
  'slow-worker': { on: 'worker', weight: 3, forMs: [1_000, 5_000] },
  'kill-relay': { on: 'relay', weight: 1.5 },
  'stop-relay': { on: 'relay', weight: 1, forMs: [500, 7_000] },
  'drain-relay': { on: 'relay', weight: 1 },
  'kill-owner': { on: 'owner', weight: 1.5 },
  'stop-owner': { on: 'owner', weight: 1, forMs: [500, 7_000] },
  'slow-gateway': { on: 'gateway', weight: 1, forMs: [1_000, 4_000] },
  'kill-gateway': { on: 'gateway', weight: 0.5, forMs: [300, 1_500] },
  'restart-gateway': { on: 'gateway', weight: 0.5, forMs: [300, 1_500] },
  'kill-store': { on: 'store', weight: 0.8, forMs: [300, 3_000] },
  'stop-store': { on: 'store', weight: 0.8, forMs: [500, 4_000] },
  'cut-path': { on: 'path', weight: 3, forMs: [500, 5_000] },
  'cut-one-way': { on: 'path', weight: 1.5, forMs: [500, 5_000] },
  'slow-path': { on: 'path', weight: 2, forMs: [1_000, 6_000] },
  'lossy-path': { on: 'path', weight: 2, forMs: [1_000, 6_000] },
  'fill-disk': { on: 'disk', weight: 1, forMs: [1_000, 6_000] },
  'rotate-certificate': { on: 'tls', weight: 0.7 },
  'change-policy': { on: 'operator', weight: 2 },
  'change-artifact': { on: 'operator', weight: 1.2 },
  'drain-worker': { on: 'operator', weight: 1.5 },
  'change-workers': { on: 'operator', weight: 1.5 },
  'leave-streams': { on: 'clients', weight: 2 },
  'broken-client': { on: 'clients', weight: 4 },
} as const satisfies Record<string, Kind>

export type KindName = keyof typeof KINDS
