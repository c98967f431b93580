import type { Log, RateLimitedLog } from './log.ts'

/** Logs unusable counts of hand-offs, once a minute per reason, if the policy reads counts. */
export function logRejectedCounts(
  log: Log,
  rateLimitedLog: RateLimitedLog,
  policyReadsCounts: () => boolean,
): (reason: string, request: string) => void {
  return (reason, reqId) => {
    if (!policyReadsCounts()) return
    rateLimitedLog.say(`counts ${reason}`, performance.now(), times =>
      log.warn({ reason, times, reqId }, 'hand-off counts unusable; routing by load'),
    )
  }
}
