/** The result of a run as a table and as JSON. */
import type { RunResult } from './run.ts'

export interface Summary {
  readonly seed: number
  readonly passed: boolean
  readonly minutes: number
  readonly machines: 'namespaces' | 'loopback'
  readonly rounds: number
  readonly requests: number
  readonly complete: number
  readonly left: number
  readonly streams: number
  readonly hit: number
  readonly resumed: number
  readonly pausesMs: { readonly count: number; readonly p50?: number; readonly p99?: number }
  readonly adminChanges: number
  readonly faults: Readonly<Record<string, number>>
  readonly failures: Readonly<Record<string, number>>
  /** Memory growth of each place with enough samples. */
  readonly mbPerMinute: Readonly<Record<string, number>>
  readonly violations: readonly { readonly what: string; readonly detail: string }[]
  readonly reproduction?: string
}

export function summaryOf(
  result: RunResult,
  run: Pick<Summary, 'seed' | 'machines' | 'reproduction'>,
): Summary {
  const { checker, rounds, adminChanges, elapsedMs } = result
  const { requests, streams, hit, whole, left } = checker.tally
  const pauses = checker.pausesMs
  return {
    ...run,
    passed: checker.violations.length === 0,
    minutes: round(elapsedMs / 60_000),
    rounds,
    requests,
    complete: whole,
    left,
    streams,
    hit,
    resumed: Math.max(result.resumed, checker.tally.resumed),
    pausesMs: { count: pauses.length, p50: quantileOf(pauses, 0.5), p99: quantileOf(pauses, 0.99) },
    adminChanges,
    faults: countsOf(checker.faults.map(({ kind }) => kind)),
    failures: Object.fromEntries([...checker.failures].sort((a, b) => b[1] - a[1])),
    mbPerMinute: Object.fromEntries(
      checker.slopes.map(({ name, mbPerMinute }) => [name, round(mbPerMinute)]),
    ),
    violations: checker.violations.map(({ what, detail }) => ({ what, detail })),
  }
}

export function tableOf(summary: Summary): string {
  const { pausesMs, streams, hit, faults, failures, mbPerMinute, violations } = summary
  const list = (counts: Readonly<Record<string, number>>) =>
    Object.entries(counts)
      .map(([name, count]) => `${name} ${count}`)
      .join(', ') || 'none'
  const rows: [string, string | number][] = [
    ['seed', summary.seed],
    ['machines', summary.machines],
    ['minutes', summary.minutes],
    ['quiet points', summary.rounds],
    ['requests', `${summary.requests}, ${summary.complete} complete, ${summary.left} left by their client`],
    ['streams hit after their first token', `${hit} of ${streams} (${percent(hit, streams)})`],
    ['resumed', summary.resumed],
    ['longest pause of streams that were hit and completed', pauseText(pausesMs)],
    ['changes by operators', summary.adminChanges],
    ['faults', `${Object.values(faults).reduce((a, b) => a + b, 0)}: ${list(faults)}`],
    ['failures by cause', list(failures)],
    ['memory, MB per minute', list(mbPerMinute)],
    ['violations', violations.length],
  ]
  const width = Math.max(...rows.map(([name]) => name.length))
  return rows.map(([name, value]) => `${name.padEnd(width)}  ${value}`).join('\n')
}

function pauseText({ count, p50, p99 }: Summary['pausesMs']): string {
  return count === 0 ? 'none' : `median ${p50!.toFixed(0)} ms, p99 ${p99!.toFixed(0)} ms (${count} streams)`
}

function countsOf(names: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const name of names.toSorted()) counts[name] = (counts[name] ?? 0) + 1
  return counts
}

const percent = (part: number, of: number) => `${of === 0 ? 0 : Math.round((100 * part) / of)} %`
const round = (value: number) => Math.round(100 * value) / 100

/** Undefined without values. */
function quantileOf(values: readonly number[], share: number): number | undefined {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]
}
