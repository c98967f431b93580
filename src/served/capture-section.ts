/** Sections of docs/evidence/gpu.md on capture: its cost, and whether its counts are exact. */
import { markdownTable } from '../report/markdown-table.ts'
import { fixed, many, whole } from '../report/numbers.ts'
import { meanInterval } from '../sim/confidence.ts'
import type { ResultOf } from './result-file.ts'
import { quantile } from './step-fit.ts'

export function captureCostSection(results: readonly ResultOf<'capture-cost'>[]): string[] {
  const cells = results.flatMap(({ model, captureCost }) => captureCost.cells.map(cell => ({ model, cell })))
  if (cells.length === 0) return []
  const parts = results.flatMap(({ model, captureCost }) =>
    (captureCost.parts ?? []).map(part => [
      model.name,
      whole(part.promptTokens),
      part.part,
      fixed(part.ms, 3),
      part.how,
    ]),
  )
  const throughput = results.flatMap(({ captureCost }) =>
    (captureCost.throughput ?? []).map(
      one =>
        `${whole(one.concurrency)} requests of ${whole(one.promptTokens)} tokens at once: ${fixed(one.withPerSecond, 1)} requests per second with capture, ${fixed(one.withoutPerSecond, 1)} without.`,
    ),
  )
  return [
    '## Cost of capture, GPU-served',
    'The prefill leg of a request with the plugin beside the same leg without it, in interleaved pairs; host and device time together. The difference is with minus without, pair by pair.',
    markdownTable(
      ['model', 'prompt tokens', 'pairs', 'without ms, median', 'added ms, median', 'added ms, mean ± 95 %'],
      1,
      cells.map(({ model, cell }) => {
        const added = cell.withMs.map((ms, i) => ms - cell.withoutMs[i]!)
        const { mean, half } = meanInterval(added)
        return [
          `${model.name}, ${model.layers} × ${model.experts}`,
          whole(cell.promptTokens),
          whole(added.length),
          fixed(median(cell.withoutMs), 2),
          signed(median(added), 2),
          `${signed(mean, 2)} ± ${fixed(half, 2)}`,
        ]
      }),
    ),
    ...(throughput.length === 0 ? [] : [throughput.join(' ')]),
    ...(parts.length === 0
      ? []
      : ['Where it goes:', markdownTable(['model', 'prompt tokens', 'part', 'ms', 'measured by'], 1, parts)]),
  ]
}

export function captureExactSection(results: readonly ResultOf<'capture-exact'>[]): string[] {
  const cases = results.flatMap(({ captureExact }) => captureExact.cases)
  const pd = results.flatMap(({ captureExact }) => captureExact.pd ?? [])
  if (cases.length === 0 && pd.length === 0) return []
  const table = markdownTable(
    ['engine', 'compared with', 'prompt: choices that differ', 'decode: choices that differ', 'note'],
    2,
    cases.map(one => [
      one.name,
      one.against,
      `${whole(one.promptDiffering)} of ${whole(one.promptChoices)}`,
      one.decodeChoices === undefined ? '·' : `${whole(one.decodeDiffering)} of ${whole(one.decodeChoices)}`,
      one.note ?? '',
    ]),
  )
  return [
    '## Capture is compared with vLLM’s own, GPU-served',
    ...(cases.length === 0 ? [] : [table]),
    ...pd.map(pdInWords),
  ]
}

function pdInWords(pd: NonNullable<ResultOf<'capture-exact'>['captureExact']['pd']>): string {
  const of = (count: number) => `${whole(count)} of ${whole(pd.prompts)}`
  return [
    `Prefill and decode on separate engines, hand-off over NIXL, through the gateway: greedy texts equal those of one server in ${of(pd.equalTexts)}.`,
    ...(pd.coldEqual === undefined ? [] : [`On the first, cold pass: ${of(pd.coldEqual)}.`]),
    ...(pd.selfColdWarmEqual === undefined
      ? []
      : [`The server alone, cold beside warm: ${of(pd.selfColdWarmEqual)}.`]),
    ...(pd.signaturesRejected === undefined ? [] : [`${many(pd.signaturesRejected, 'signature')} rejected.`]),
    ...(pd.transfersFailed === undefined ? [] : [`${many(pd.transfersFailed, 'transfer')} failed.`]),
    ...(pd.ticketsLeft === undefined ? [] : [`${many(pd.ticketsLeft, 'ticket')} left.`]),
  ].join(' ')
}

const median = (values: readonly number[]): number => quantile(Float64Array.from(values).sort(), 0.5)
const signed = (value: number, digits: number): string => `${value > 0 ? '+' : ''}${fixed(value, digits)}`
