/**
 * What the adversary does, drawn from the seed before the run: rounds of steps with their times. A step is
 * complete in itself (it ends its own fault), so that any subset of a schedule can be run.
 */
import { createRandom, type Random } from '../../../src/math/random.ts'
import { DECODES, GATEWAYS, type GatewayName, PREFILLS, WORKERS } from '../cluster/machines.ts'
import { BROKEN_KINDS } from '../load/broken-clients.ts'
import { KINDS, type Kind, type KindName } from './kinds.ts'

export interface Step {
  /** ROUND:NUMBER */
  readonly id: string
  readonly atMs: number
  readonly kind: KindName
  /** See Fault. */
  readonly targets: readonly string[]
  /** 0: over at once. */
  readonly forMs: number
  /** For choices within the step. */
  readonly seed: number
}

export interface ScheduleOptions {
  readonly seed: number
  readonly roundMs: number
  /** Faults of the network and of the disk are possible. */
  readonly hasNetwork: boolean
  readonly hasDisk: boolean
}

/** Time between two steps. Several faults are active at a time. */
const [MIN_GAP_MS, MORE_GAP_MS] = [250, 900]
/** More, and nothing would get through and nothing would be tested. */
const MAX_WORKERS_DOWN = 2

/** Paths between machines that communicate. */
const PATHS: readonly (readonly [string, string])[] = [
  ...GATEWAYS.flatMap(gateway => ['store', 'client', ...WORKERS].map(other => [gateway, other] as const)),
  // The most interesting ones twice: tokens flow on them.
  ...GATEWAYS.flatMap(gateway => DECODES.map(decode => [gateway, decode] as const)),
  ...PREFILLS.flatMap(prefill => DECODES.map(decode => [decode, prefill] as const)),
]

export function drawRound(round: number, options: ScheduleOptions): Step[] {
  const random = createRandom(options.seed).fork(round)
  const kinds = (Object.entries(KINDS) as [KindName, Kind][]).filter(
    ([, { on }]) => (on !== 'path' || options.hasNetwork) && (on !== 'disk' || options.hasDisk),
  )
  const steps: Step[] = []
  for (let atMs = MIN_GAP_MS; ; atMs += MIN_GAP_MS + random.below(MORE_GAP_MS)) {
    if (atMs >= options.roundMs) return steps
    const [kind, { on, forMs }] = weighted(kinds, random)
    const step: Step = {
      id: `${round}:${steps.length}`,
      atMs,
      kind,
      targets: targetsOf(on, random),
      forMs: forMs === undefined ? 0 : forMs[0] + random.below(forMs[1] - forMs[0]),
      seed: random.below(2 ** 31),
    }
    if (isFree(step, steps)) steps.push(step)
  }
}

/** Whether its targets have no other fault at that time, and enough workers are left. */
function isFree(step: Step, steps: readonly Step[]): boolean {
  const active = steps.filter(({ atMs, forMs }) => atMs + forMs > step.atMs)
  const { on } = KINDS[step.kind]
  if (on === 'worker' && active.filter(({ kind }) => KINDS[kind].on === 'worker').length >= MAX_WORKERS_DOWN)
    return false
  // One gateway at a time, or no request would be served.
  const isGateway = (kind: KindName) => ['gateway', 'owner', 'relay'].includes(KINDS[kind].on)
  if (isGateway(step.kind) && active.some(({ kind }) => isGateway(kind))) return false
  return !active.some(
    other => KINDS[other.kind].on === on && other.targets.join() === step.targets.join() && other.forMs > 0,
  )
}

function targetsOf(on: Kind['on'], random: Random): string[] {
  const gateway = (): GatewayName => pick(GATEWAYS, random)
  switch (on) {
    case 'worker':
      // Decode workers more often: they hold the streams.
      return [random.uniform() < 0.75 ? pick(DECODES, random) : pick(PREFILLS, random)]
    case 'relay':
      return [`${gateway()}/relay-${1 + random.below(2)}`]
    case 'owner':
      return [`${gateway()}/owner`]
    case 'gateway':
    case 'disk':
    case 'operator':
      return [gateway()]
    case 'tls':
      return ['gw1']
    case 'store':
      return ['store']
    case 'path':
      return [...pick(PATHS, random)]
    case 'clients':
      return [`${gateway()}:${pick(BROKEN_KINDS, random)}`]
  }
}

function weighted(kinds: readonly [KindName, Kind][], random: Random): [KindName, Kind] {
  let drawn = random.uniform() * kinds.reduce((sum, [, { weight }]) => sum + weight, 0)
  return kinds.find(([, { weight }]) => (drawn -= weight) < 0) ?? kinds[0]!
}

function pick<T>(of: readonly T[], random: Random): T {
  return of[random.below(of.length)]!
}
