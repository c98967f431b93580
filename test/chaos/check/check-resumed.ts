/**
 * With `--complete`: a stream must go on when its decoder dies, as long as another decoder and a prefill
 * worker were untouched while it ran. Off until the gateway resumes streams.
 */
import type { Fault, Observation } from '../observation.ts'
import { concerns, overlaps } from './check-end.ts'

export interface Topology {
  readonly prefills: readonly string[]
  readonly decodes: readonly string[]
}

/** A worker that returns is used again only after its health checks. */
const RECOVERY_MS = 5_000
/** Failures of a leg to a worker. Others, such as a full queue, are no reason to resume. */
const LEG = /^ELDR_(STREAM_BROKEN|STREAM_STALLED|DECODE_\w+|PREFILL_\w+)$/

export function resumeProblems(
  seen: Observation,
  faults: readonly Fault[],
  { prefills, decodes }: Topology,
): [what: string, detail: string][] {
  const code = seen.codes.find(one => LEG.test(one))
  if (code === undefined) return []
  const around = faults.filter(fault => overlaps(fault, seen, RECOVERY_MS))
  if (around.some(fault => concerns(fault, seen.gateway))) return []
  const isUntouched = (name: string) => !around.some(({ targets }) => targets.includes(name))
  const others = decodes.filter(name => name !== seen.worker && isUntouched(name))
  const sources = prefills.filter(isUntouched)
  if (others.length === 0 || sources.length === 0) return []
  return [['not resumed', `${code}, while ${[...others, ...sources].join(', ')} were untouched`]]
}
