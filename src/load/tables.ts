/** Tables for the results of `eldr bench`. */
import { fixed, percent, whole } from '../report/numbers.ts'
import { table } from '../report/table.ts'
import { printable, type Terminal, wrapped } from '../report/terminal.ts'
import type { Quantiles } from '../sim/histogram.ts'
import type { Comparison } from './compare.ts'
import type { BenchResult } from './result.ts'

const right = (title: string) => ({ title, align: 'right' as const })
const ms = (value: number | null) => fixed(value ?? NaN, value !== null && Math.abs(value) >= 1000 ? 0 : 2)
/** Plain spaces are easier to search for and to cut than no-break spaces. */
const spaced = (words: string) => words.replaceAll('\u00a0', ' ')

export function benchTables(result: BenchResult, terminal: Terminal): string {
  const { requests, throughput, tokens, goodput, errors } = result
  const row = (name: string, { mean, p50, p90, p99, count }: Quantiles) => [
    name,
    ms(mean),
    ms(p50),
    ms(p90),
    ms(p99),
    whole(count),
  ]
  const times = table(
    [{ title: 'ms' }, right('mean'), right('p50'), right('p90'), right('p99'), right('values')],
    [
      row('TTFT', result.ttftMs),
      row('TPOT', result.tpotMs),
      row('ITL', result.itlMs),
      row('end to end', result.e2eMs),
    ],
    terminal,
  )
  const counts = [
    `${whole(requests.ok)} of ${whole(requests.counted)} requests succeeded in ${fixed(result.seconds, 1)} s: ${fixed(throughput.requestsPerSecond, 2)} requests/s, ${fixed(throughput.outputTokensPerSecond, 0)} output tokens/s${throughput.totalTokensPerSecond === null ? '' : `, ${fixed(throughput.totalTokensPerSecond, 0)} including prompts`}`,
    `per request: ${tokens.promptMean === null ? '' : `${fixed(tokens.promptMean, 1)} prompt tokens, `}${fixed(tokens.outputMean, 1)} output tokens (${COUNTED[tokens.from]})`,
    ...(goodput === null
      ? []
      : [
          `goodput: ${spaced(percent(goodput.share, 1))} met ${sloInWords(goodput.slo)}, ${fixed(goodput.requestsPerSecond, 2)} requests/s`,
        ]),
  ]
  const failures = table(
    [{ title: 'error' }, right('requests'), { title: 'example' }],
    errors.map(({ kind, count, example }) => [kind, whole(count), printable(example).slice(0, 100)]),
    terminal,
  )
  return [
    wrapped(terminal.dim(printable(setupInWords(result))), terminal.width),
    times,
    counts.map(line => `  ${wrapped(line, terminal.width - 2, 2)}`).join('\n'),
    ...(errors.length === 0 ? [] : [failures]),
    clientInWords(result, terminal),
  ].join('\n\n')
}

const COUNTED = {
  usage: 'counted by the server',
  events: 'counted as events, because the server sent no usage',
  both: 'counted by the server if it sent usage, otherwise as events',
  none: 'none',
} as const

function sloInWords({ ttftMs, tpotMs }: { readonly ttftMs?: number; readonly tpotMs?: number }): string {
  const parts = [
    ...(ttftMs === undefined ? [] : [`TTFT ≤ ${ttftMs} ms`]),
    ...(tpotMs === undefined ? [] : [`TPOT ≤ ${tpotMs} ms`]),
  ]
  return parts.join(' and ')
}

function setupInWords({ setup, at }: BenchResult): string {
  const words = (values: Readonly<Record<string, unknown>>) =>
    Object.entries(values)
      .map(([key, value]) => `${key} ${String(value)}`)
      .join(', ')
  return `Measured at ${setup.url} (${setup.api}, model ${setup.model}), ${at}. Load: ${words(setup.load)}. Prompts: ${words(setup.prompts)}. ${words(setup.limits)}; warm-up: ${words(setup.warmUp) || 'none'}; seed ${setup.seed}.`
}

/** Says from when latencies are measured and whether the client kept up. */
function clientInWords({ client, machine }: BenchResult, terminal: Terminal): string {
  const { sendLagMs, loopDelayMs, cpuShare, keptUp, isOpenLoop } = client
  const from = isOpenLoop
    ? 'Latencies are measured from the planned time of each request.'
    : 'Closed loop: latencies are measured from sending, and a slow server gets fewer requests.'
  const numbers = `send delay p99 ${ms(sendLagMs.p99)} ms (max ${ms(sendLagMs.max)}), event loop delay p99 ${ms(loopDelayMs.p99)} ms, ${spaced(percent(cpuShare))} of a core (${machine.cpu}, ${machine.cores} cores)`
  const verdict = keptUp
    ? terminal.dim(`The client kept up: ${numbers}.`)
    : `${terminal.warn('The client could not keep up:')} ${numbers}. Its delay is part of the latencies above; use a faster or less busy machine, or a lower rate.`
  return [terminal.dim(from), verdict].map(line => wrapped(line, terminal.width)).join('\n')
}

export function comparisonTables(
  { ratios, differences, cautions }: Comparison,
  names: readonly [string, string],
  terminal: Terminal,
): string {
  const value = (number: number | null, unit: string) =>
    unit === 'ms' ? ms(number) : fixed(number ?? NaN, unit === 'requests' ? 0 : 2)
  const rows = ratios.map(({ name, unit, a, b, ratio }) => [
    unit === '' ? name : `${name}, ${unit}`,
    value(a, unit),
    value(b, unit),
    fixed(ratio ?? NaN, 3),
  ])
  const list = (title: string, lines: readonly string[]) =>
    [terminal.bold(title), ...lines.map(line => `  ${wrapped(printable(line), terminal.width - 2, 2)}`)].join(
      '\n',
    )
  return [
    terminal.dim(printable(`A ${names[0]}, B ${names[1]}`)),
    table([{ title: '' }, right('A'), right('B'), right('B / A')], rows, terminal),
    differences.length === 0
      ? terminal.dim('The setups of the runs are the same.')
      : list(
          'Differences between the setups',
          differences.map(({ key, a, b }) => `${key}: ${a} → ${b}`),
        ),
    ...(cautions.length === 0 ? [] : [list('Warnings', cautions)]),
  ].join('\n\n')
}
