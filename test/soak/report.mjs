// Counts of a soak per minute, and the checks at its end.
import { ENDS } from './mix.mjs'

/** Outcomes and first-byte times of an interval. */
export class Tally {
  ends = Object.fromEntries(ENDS.map(end => [end, 0]))
  unwanted = 0
  firstMs = []
  faults = []
  residentBytes = []

  /** @param {{end: import('./mix.mjs').End, wanted: boolean, firstMs: number | undefined}} one */
  add({ end, wanted, firstMs }) {
    this.ends[end]++
    if (!wanted) this.unwanted++
    if (end === 'ok' && firstMs !== undefined) this.firstMs.push(firstMs)
  }

  get requests() {
    return Object.values(this.ends).reduce((sum, count) => sum + count, 0)
  }

  toJSON() {
    const { requests, ends, unwanted, faults } = this
    return {
      requests,
      ...ends,
      unwanted,
      p50Ms: quantile(this.firstMs, 0.5),
      p99Ms: quantile(this.firstMs, 0.99),
      residentMb: megabytes(median(this.residentBytes)),
      faults,
    }
  }
}

/** @param {readonly number[]} values @param {number} share */
export function quantile(values, share) {
  const sorted = values.toSorted((a, b) => a - b)
  const value = sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]
  return value === undefined ? undefined : Number(value.toFixed(1))
}

export const median = values => quantile(values, 0.5) ?? 0
export const megabytes = bytes => Number((bytes / 1e6).toFixed(1))

/** Each check: its name, the value found, and whether it passed. */
export function checksOf({ minutes, pending, lost, gauges, workers, metrics, kept, gateway, exitCode }) {
  const sum = name => minutes.reduce((total, { ends }) => total + ends[name], 0)
  const counted = name => workers.reduce((total, counters) => total + counters[name], 0)
  const zero = (what, found, more) => ({ what, found, ok: found === 0, more })
  const growth = (kept.last - kept.first) / kept.resident
  return [
    zero('requests that never ended', pending.length, pending.slice(0, 5)),
    zero('requests without a response', sum('lost'), lost.slice(0, 5)),
    zero('streams cut off without an error event', sum('cut')),
    zero(
      'responses with an unexpected status',
      minutes.reduce((total, { unwanted }) => total + unwanted, 0),
    ),
    ...Object.entries(gauges).map(([name, value]) => zero(`${name} when idle`, value)),
    zero('responses in progress at workers when idle', counted('active')),
    zero('bad framing seen by workers', counted('badFraming')),
    zero(
      'prefills sent to decode workers',
      workers.reduce((total, { role, misdirected }) => total + (role === 'decode' ? misdirected : 0), 0),
    ),
    zero('tickets leaked', metrics.get('eldr_ticket_leaks_total') ?? 0),
    zero(
      'errors, Node warnings and unhandled rejections in the log',
      gateway.errors.length,
      gateway.errors.slice(0, 5),
    ),
    {
      what: `retained memory, last ${kept.seconds} s compared with the first after warm-up, as a share of resident memory`,
      found: `${(growth * 100).toFixed(1)} %`,
      ok: growth <= 0.1,
      more: {
        firstMb: megabytes(kept.first),
        lastMb: megabytes(kept.last),
        residentMb: megabytes(kept.resident),
      },
    },
    zero('exit code after SIGTERM', exitCode),
  ]
}

export function table(minutes) {
  const head = ['minute', 'requests', ...ENDS, 'p50 ms', 'p99 ms', 'MB', 'faults']
  const rows = minutes.map((tally, at) => {
    const { p50Ms, p99Ms, residentMb, faults } = tally.toJSON()
    return [
      at + 1,
      tally.requests,
      ...ENDS.map(end => tally.ends[end]),
      p50Ms ?? '–',
      p99Ms ?? '–',
      residentMb,
      faults.join(', ') || '–',
    ]
  })
  const widths = head.map((name, column) =>
    Math.max(name.length, ...rows.map(row => String(row[column]).length)),
  )
  const line = row =>
    row
      .map((cell, column) =>
        column === head.length - 1 ? String(cell) : String(cell).padStart(widths[column]),
      )
      .join('  ')
  return [line(head), ...rows.map(line)].join('\n')
}
