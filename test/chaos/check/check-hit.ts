/** Which streams the adversary hit after their first token. */
import type { Fault, Observation } from '../observation.ts'

/** Faults of a whole gateway. Those of one relay hit only the streams that they broke. */
const WHOLE_GATEWAY = new Set(['kill-gateway', 'restart-gateway', 'slow-gateway', 'kill-owner', 'stop-owner'])

export function isHit(seen: Observation, faults: readonly Fault[]): boolean {
  if (!seen.stream || seen.firstMs === undefined) return false
  if (seen.end === 'left') return true
  const began = seen.firstMs
  return faults.some(fault => fault.startMs > began && fault.startMs < seen.endMs && touches(fault, seen))
}

/** Whether the fault is one of the stream's own worker, gateway or path. */
function touches({ kind, targets }: Fault, seen: Observation): boolean {
  if (targets.length === 2)
    return targets.includes(seen.gateway) && targets.some(name => name === 'client' || name === seen.worker)
  const [target = ''] = targets
  if (target === seen.worker) return true
  if (target === seen.gateway || target === `${seen.gateway}/owner`) return WHOLE_GATEWAY.has(kind)
  return target.startsWith(`${seen.gateway}/relay`) && (seen.end === 'cut' || seen.codes.length > 0)
}
