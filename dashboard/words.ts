/** Numbers with their units, and what the gateway's short names mean. */
import type { ClusterEvent } from '../src/gateway/observe/insight/wire.ts'

/** A number and its unit stay on one line. */
const NEXT = '\u00a0'

/** Three digits and no more than are known. */
export function number(value: number): string {
  const size = Math.abs(value)
  if (size >= 10_000) return `${(value / 1000).toFixed(size >= 100_000 ? 0 : 1)}k`
  return value.toFixed(size >= 100 || Number.isInteger(value) ? 0 : size >= 10 ? 1 : 2)
}

export function time(ms: number | undefined): string {
  if (ms === undefined || !Number.isFinite(ms)) return '–'
  return ms >= 10_000
    ? `${number(ms / 1000)}${NEXT}s`
    : ms >= 1000
      ? `${(ms / 1000).toFixed(2)}${NEXT}s`
      : `${number(ms)}${NEXT}ms`
}

export function percent(share: number | undefined, digits = 0): string {
  return share === undefined || !Number.isFinite(share) ? '–' : `${(100 * share).toFixed(digits)}${NEXT}%`
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
    long: 'The worker whose centroid is most like the request; it was the least loaded of the band.',
  },
  band_spill: {
    short: 'less loaded in band',
    long: 'Nearly as like as the best match (within τ), and less loaded.',
  },
  least_cost: {
    short: 'least added cost',
    long: 'Where the request adds the least time to decode steps, going by who is there now.',
  },
  no_signature: { short: 'no signature', long: 'The hand-off had no usable expert counts: it went by load.' },
  no_counts: { short: 'no counts', long: 'The hand-off had no usable expert counts: it went by load.' },
  no_centroid: {
    short: 'no centroid',
    long: 'The worker has no cluster of the artifact: it takes its share by load.',
  },
  no_domain: {
    short: 'no domain',
    long: 'The request has no label, which the policy domain goes by: it went by load.',
  },
  domain: { short: 'its domain', long: 'The worker of the request’s domain.' },
  least_loaded: { short: 'least loaded', long: 'The worker with the fewest requests.' },
  two_choices: { short: 'less loaded of two', long: 'The less loaded of two workers drawn at random.' },
  round_robin: { short: 'next in turn', long: 'Workers take turns.' },
  random: { short: 'at random', long: 'Any worker, each with the same chance.' },
}

export function reason(name: string): { readonly short: string; readonly long: string } {
  return REASONS[name] ?? { short: name, long: name }
}

export const STATES: Readonly<Record<string, string>> = {
  ready: 'Takes requests.',
  draining: 'Takes no new requests and ends those it has.',
  leaving: 'Removed; ends the requests it has.',
  unhealthy: 'Does not answer its health check: no requests go there.',
  open: 'Failed too often: it gets no requests for a while.',
  unknown: 'Not checked yet.',
  silent: 'Does not answer now.',
}

const CHANGES: Readonly<Record<string, string>> = {
  added: 'was added',
  removed: 'is being removed',
  forgotten: 'is gone',
  drained: 'is draining',
  undrained: 'takes requests again',
  healthy: 'is well',
  unhealthy: 'does not answer its health check',
  breaker_open: 'failed too often: its breaker is open',
  breaker_half_open: 'is tried with one request',
  breaker_closed: 'works again: its breaker is closed',
}

const ROUTING: Readonly<Record<string, string>> = {
  policy: 'policy or band changed',
  artifact: 'another artifact was loaded',
  refit: 'clusters were fitted anew',
  refit_refused: 'clusters could not be fitted anew',
  workers: 'room for more workers',
  model: 'the model has shown its shape',
}

export function happening({ kind, about, change }: ClusterEvent): string {
  if (kind === 'worker') return `${about} ${CHANGES[change] ?? change}`
  return `${ROUTING[change] ?? change}; policy ${about}`
}

export const OUTCOMES: Readonly<Record<string, string>> = {
  ok: 'answered',
  refused: 'refused by the gateway',
  worker_refused: 'refused by the worker',
  failed: 'failed',
  broken: 'broke off in mid-stream',
  client_gone: 'client left',
  client_stalled: 'client took nothing',
  timeout: 'timed out',
}
