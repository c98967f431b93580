/** Sections of docs/evidence/gpu.md on capture: its cost, and whether its counts are exact. */
import { markdownTable } from '../report/markdown-table.ts'
import { fixed, many, whole } from '../report/numbers.ts'
import { meanInterval } from '../sim/confidence.ts'
import type { ResultOf } from './result-file.ts'
import { median, signed } from './capture-numbers.ts'

/** Added to a prefill leg, at most. */
const TARGET_MS = 0.3

const addedMs = ({ withMs, withoutMs }: { readonly withMs: number[]; readonly withoutMs: number[] }) =>
  withMs.map((ms, i) => ms - withoutMs[i]!)

export function captureCostSection(results: readonly ResultOf<'capture-cost'>[]): string[] {
  const cells = results.flatMap(({ model, captureCost }) => captureCost.cells.map(cell => ({ model, cell })))
  if (cells.length === 0) return []
  const throughput = results.flatMap(({ captureCost }) =>
    (captureCost.throughput ?? []).map(
      (one, at) =>
        `${whole(one.concurrency)} requests of ${whole(one.promptTokens)} tokens at once, run ${at + 1}: ${fixed(one.withPerSecond, 1)} requests per second with capture, ${fixed(one.withoutPerSecond, 1)} without.`,
    ),
  )
  const isMissed = cells.some(({ cell }) => meanInterval(addedMs(cell)).mean > TARGET_MS)
  return [
    '## Cost of capture, GPU-served',
    'The prefill leg of a request with capture beside the same leg without it, in interleaved pairs; host and device time together. The difference is with minus without, pair by pair.',
    markdownTable(
      [
        'model',
        'without capture',
        'prompt tokens',
        'pairs',
        'without ms, median',
        'added ms, median',
        'added ms, mean ± 95 %',
      ],
      2,
      cells.map(({ model, cell }) => {
        const added = addedMs(cell)
        const { mean, half } = meanInterval(added)
        return [
          `${model.name}, ${model.layers} × ${model.experts}`,
          cell.switched === true ? 'the same server, capture off' : 'another server, without the plugin',
          whole(cell.promptTokens),
          whole(added.length),
          fixed(median(cell.withoutMs), 2),
          signed(median(added), 2),
          `${signed(mean, 2)} ± ${fixed(half, 2)}`,
        ]
      }),
    ),
    ...(isMissed ? [`The target of ${fixed(TARGET_MS, 1)} ms is missed.`] : []),
    ...(throughput.length === 0 ? [] : [throughput.join(' ')]),
  ]
}

export function captureExactSection(results: readonly ResultOf<'capture-exact'>[]): string[] {
  const cases = results.flatMap(({ captureExact }) => captureExact.cases)
  const pd = results.flatMap(({ captureExact }) => captureExact.pd ?? [])
  if (cases.length === 0 && pd.length === 0) return []
  const notes = cases.some(({ note }) => note !== undefined)
  const table = markdownTable(
    [
      'server',
      'prompts',
      'compared with',
      ...(notes ? ['note'] : []),
      'prompt: choices that differ',
      'by layer',
      'decode: choices that differ',
      'equal texts',
    ],
    notes ? 4 : 3,
    cases.map(one => [
      serverOf(one),
      one.round ?? '·',
      one.against,
      ...(notes ? [one.note ?? ''] : []),
      `${whole(one.promptDiffering)} of ${whole(one.promptChoices)}`,
      one.differingByLayer?.some(count => count > 0) === true ? one.differingByLayer.join(', ') : '·',
      (one.decodeChoices ?? 0) === 0 ? '·' : `${whole(one.decodeDiffering)} of ${whole(one.decodeChoices)}`,
      one.sameTexts === undefined || one.prompts === undefined
        ? '·'
        : `${whole(one.sameTexts)} of ${whole(one.prompts)}`,
    ]),
  )
  return [
    '## Is capture exact? GPU-served',
    ...(cases.length === 0
      ? []
      : [
          'Rows with *a second capture in the same forward pass*: the ids of every router are also copied to a buffer of their own, and counts made from it are compared with the plugin’s. One choice per prompt and layer that is only missing or only added would not show in these results; the gateway rejects such counts (`bad_sums`). In the other rows a server with the plugin is compared with a server that has the same flags and vLLM’s own capture (`--enable-return-routed-experts`): the same prompts, captured by other code in another process, where the engines themselves may choose differently. Decode choices are compared where texts are equal; servers that do not record them have none. [The guide](../guides/vllm.md#choices-that-differ-between-servers) has the conclusion.',
          table,
        ]),
    ...pd.map(pdInWords),
  ]
}

/** Without the round, which has a column. */
const serverOf = ({ name, round }: { readonly name: string; readonly round?: string }): string =>
  round !== undefined && name.endsWith(`, ${round}`) ? name.slice(0, -round.length - 2) : name

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
