/** Compares policies with the best load balancer. */
import { DECODE_POLICIES, isLoadBalancer } from '../policy/decode-policy.ts'
import type { Interval } from './confidence.ts'
import type { SimulationResult } from './result.ts'
import { changeAgainst, over, type SweepPoint } from './sweep.ts'

export const LOAD_BALANCERS: readonly string[] = DECODE_POLICIES.filter(isLoadBalancer).map(
  ({ name }) => name,
)

type Value = (run: SimulationResult) => number

/**
 * The load balancer with the lowest value, which may be a different one for the median and the tail.
 * Undefined if none was run.
 */
export function bestBalancer<Point extends SweepPoint>(
  points: readonly Point[],
  value: Value,
): Point | undefined {
  const balancers = points.filter(({ variant }) => LOAD_BALANCERS.includes(variant))
  return balancers.reduce<Point | undefined>(
    (best, point) => (best === undefined || over(point, value).mean < over(best, value).mean ? point : best),
    undefined,
  )
}

/**
 * Change against the best load balancer, paired by seed; undefined without one, and for that one itself.
 * Points are of one rate and setting.
 */
export function gainOf(points: readonly SweepPoint[], point: SweepPoint, value: Value): Interval | undefined {
  const base = bestBalancer(points, value)
  return base === undefined || base === point ? undefined : changeAgainst(base, point, value)
}
