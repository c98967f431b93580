/** Formats numbers with units, and explains the gateway's short names. */
import type { ClusterEvent } from '../src/gateway/observe/insight/wire.ts'

/** No-break space: keeps a number and its unit on one line. */
const NBSP = '\u00a0'

/** At most three significant digits. */
export function number(value: number): string {
  const size = Math.abs(value)
  if (size >= 10_000) return `${(value / 1000).toFixed(size >= 100_000 ? 0 : 1)}k`
  return value.toFixed(size >= 100 || Number.isInteger(value) ? 0 : size >= 10 ? 1 : 2)
}

export function time(ms: number | undefined): string {
  if (ms === undefined || !Number.isFinite(ms)) return '–'
  return ms >= 10_000
    ? `${number(ms / 1000)}${NBSP}s`
    : ms >= 1000
      ? `${(ms / 1000).toFixed(2)}${NBSP}s`
      : `${number(ms)}${NBSP}ms`
}

/** A short time, given in milliseconds. */
export function micro(ms: number): string {
  return `${number(1000 * ms)}${NBSP}µs`
}

export function percent(share: number | undefined, digits = 0): string {
  return share === undefined || !Number.isFinite(share) ? '–' : `${(100 * share).toFixed(digits)}${NBSP}%`
}

export function cosine(value: number | null | undefined): string {
  return value === null || value === undefined ? '–' : value.toFixed(3)
}

export function clock(ms: number): string {
  return new Date(ms).toLocaleTimeString([], { hour12: false })
}

export function count(howMany: number, one: string, many = `${one}s`): string {
  return `${number(howMany)} ${howMany === 1 ? one : many}`
}

/** Why a worker was picked. */
export const REASONS: Readonly<Record<string, { readonly short: string; readonly long: string }>> = {
  band_hit: {
    short: 'best match',
    long: 'The worker whose centroid is most similar to the request; it was the least loaded in the band.',
  },
  band_spill: {
    short: 'less loaded in band',
    long: 'Nearly as similar as the best match (within τ), and less loaded.',
  },
  match_hit: {
    short: 'best match',
    long: 'The worker that the request resembles most, compared with what is usual for that worker.',
  },
  match_spill: {
    short: 'less loaded',
    long: 'A worker that resembles the request less than the best match but has less load.',
  },
  least_cost: {
    short: 'least added cost',
    long: 'The worker where the request adds the least decode time, given the requests there now.',
  },
  no_signature: { short: 'no signature', long: 'The hand-off had no usable expert counts: routed by load.' },
  no_counts: { short: 'no counts', long: 'The hand-off had no usable expert counts: routed by load.' },
  no_centroid: {
    short: 'no centroid',
    long: 'The worker has no cluster in the artifact: routed by load.',
  },
  no_domain: {
    short: 'no domain',
    long: 'The request has no domain label, which the policy domain needs: routed by load.',
  },
  domain: { short: 'by domain', long: 'The worker of the request’s domain.' },
  least_loaded: { short: 'least loaded', long: 'The worker with the fewest requests.' },
  two_choices: { short: 'less loaded of two', long: 'The less loaded of two workers drawn at random.' },
  round_robin: { short: 'round robin', long: 'Workers take turns.' },
  random: { short: 'random', long: 'Any worker with equal probability.' },
}

export function reason(name: string): { readonly short: string; readonly long: string } {
  return REASONS[name] ?? { short: name, long: name }
}

export const STATES: Readonly<Record<string, string>> = {
  ready: 'Accepts requests.',
  draining: 'Accepts no new requests and finishes running ones.',
  leaving: 'Removed; finishes running requests.',
  unhealthy: 'Fails its health check: gets no requests.',
  open: 'Failed too often: gets no requests for a while.',
  unknown: 'Not checked yet.',
  silent: 'Does not respond at the moment.',
}

const CHANGES: Readonly<Record<string, string>> = {
  added: 'added',
  removed: 'is being removed',
  forgotten: 'removed',
  drained: 'is draining',
  undrained: 'accepts requests again',
  healthy: 'is healthy',
  unhealthy: 'fails its health check',
  breaker_open: 'failed too often: circuit breaker open',
  breaker_half_open: 'gets one trial request',
  breaker_closed: 'recovered: circuit breaker closed',
}

const ROUTING: Readonly<Record<string, string>> = {
  policy: 'policy or τ changed',
  artifact: 'artifact loaded',
  refit: 'clusters refitted',
  refit_refused: 'refit refused',
  workers: 'tables grown for more workers',
  model: 'model shape detected',
  adapt_drift: 'live requests drifted away from the artifact',
  adapt_recovered: 'live requests resemble the calibration again',
  adapt_judged: 'refit judged',
  adapt_swapped: 'artifact swapped for a refitted one',
  adapt_kept: 'swap kept',
  adapt_undone: 'swap undone',
  adapt_rolled_back: 'swap rolled back',
  adapt_failed: 'swap failed',
  adapt_skipped: 'a file of a swap cannot be read',
}

export function eventText({ kind, about, change }: ClusterEvent): string {
  if (kind === 'worker') return `${about} ${CHANGES[change] ?? change}`
  return `${ROUTING[change] ?? change}; policy ${about}`
}

export const OUTCOMES: Readonly<Record<string, string>> = {
  ok: 'completed',
  refused: 'rejected by the gateway',
  worker_refused: 'rejected by the worker',
  failed: 'failed',
  broken: 'broke off mid-stream',
  client_gone: 'client disconnected',
  client_stalled: 'client stopped reading',
  timeout: 'timed out',
}
