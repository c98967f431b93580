/**
 * Each request ends exactly once and in time: complete, or with one coded error. A connection may break only
 * where the adversary hit the gateway that held it, or the client's path to it.
 */
import type { Fault, Observation } from '../observation.ts'

/** A connection that broke shortly after a fault was still hit by it. */
const AFTER_MS = 2_000
const CODE = /^ELDR_[A-Z_]+$/
/** Faults of a gateway that end connections without an error event (docs/guides/processes.md). */
const BREAK_CONNECTIONS = new Set(['kill-relay', 'stop-relay', 'kill-gateway', 'restart-gateway'])
/** Faults that hold up a gateway, and with it the end of its requests. */
const HOLD_UP = new Set([...BREAK_CONNECTIONS, 'slow-gateway', 'stop-owner', 'kill-owner'])

export interface EndOptions {
  /** Limit of a request: the gateway's own limit and what a busy machine needs on top. */
  readonly limitMs: number
}

export function endProblems(
  seen: Observation,
  faults: readonly Fault[],
  { limitMs }: EndOptions,
): [what: string, detail: string][] {
  const problems: [string, string][] = []
  const add = (what: string, detail: string) => problems.push([what, detail])
  const tookMs = seen.endMs - seen.startMs
  const around = faults.filter(fault => overlaps(fault, seen) && concerns(fault, seen.gateway))
  const heldUpMs = around
    .filter(fault => HOLD_UP.has(fault.kind) || isClientPath(fault))
    .reduce((sum, { startMs, endMs }) => sum + (endMs ?? seen.endMs) - startMs, 0)
  const mayBreak = around.some(fault => BREAK_CONNECTIONS.has(fault.kind) || isClientPath(fault))
  if (seen.end === 'hung') {
    if (!mayBreak) add('hang', `not over after ${tookMs.toFixed(0)} ms`)
  } else if (seen.end !== 'left' && tookMs > limitMs + heldUpMs)
    add(
      'late end',
      `after ${tookMs.toFixed(0)} ms, limit ${limitMs} ms and ${heldUpMs.toFixed(0)} ms of faults`,
    )
  if ((seen.end === 'cut' || seen.end === 'refused') && !mayBreak)
    add('connection broke', `${seen.end} (${seen.reason ?? 'closed'}) without a fault that explains it`)
  if (seen.end === 'ended') for (const problem of howItEnded(seen)) add(...problem)
  if (seen.late > 0) add('ended twice', `${seen.late} events after the end`)
  if (seen.dones > 1 || seen.codes.length > 1 || seen.finishes.length > 1)
    add(
      'ended twice',
      `${seen.dones} × [DONE], ${seen.codes.length} errors, ${seen.finishes.length} finish reasons`,
    )
  if (seen.dones > 0 && seen.codes.length > 0) add('ended twice', `[DONE] and ${seen.codes.join()}`)
  return problems
}

function* howItEnded(seen: Observation): Generator<[what: string, detail: string]> {
  const { status, codes, stream, dones, finishes } = seen
  for (const code of codes) if (!CODE.test(code)) yield ['error without a code', code]
  if (status !== 200) {
    if (codes.length === 0) yield ['error without a code', `status ${status}`]
    return
  }
  if (codes.length > 0) return
  if (stream && dones === 0) yield ['swallowed end', 'neither [DONE] nor an error event']
  if (finishes.length === 0) yield ['swallowed end', 'no finish reason']
}

/** The client's connection, or that of the gateway to it. */
function isClientPath({ targets }: Fault): boolean {
  return targets.length === 2 && targets.includes('client')
}

/** Whether it is a fault of this gateway, of a process in it, or of a path from it. */
export function concerns({ targets }: Fault, gateway: string): boolean {
  return targets.some(target => target === gateway || target.startsWith(`${gateway}/`))
}

export function overlaps(
  { startMs, endMs = Infinity }: Fault,
  seen: Observation,
  afterMs = AFTER_MS,
): boolean {
  return startMs <= seen.endMs && endMs + afterMs >= seen.startMs
}
