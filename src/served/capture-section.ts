/** Sections of docs/evidence/gpu.md on capture: its cost, and whether its counts are exact. */
import { markdownTable } from '../report/markdown-table.ts'
import { fixed, many, whole } from '../report/numbers.ts'
import type { ResultOf } from './result-file.ts'
import { median, signed } from './capture-numbers.ts'

/** Targets for what capture adds to a prefill leg, and the paper's figure for Qwen3-30B-A3B (Table 1). */
const TARGET = { promptTokens: 2048, ms: 0.3 }
const PAPER = { layers: 48, experts: 128, ms: 0.71 }

export function captureCostSection(results: readonly ResultOf<'capture-cost'>[]): string[] {
  const cells = results.flatMap(({ model, captureCost }) => captureCost.cells.map(cell => ({ model, cell })))
  if (cells.length === 0) return []
  const throughput = results.flatMap(({ captureCost }) =>
    (captureCost.throughput ?? []).map(
      (one, at) =>
        `${whole(one.concurrency)} requests of ${whole(one.promptTokens)} tokens at once, run ${at + 1}: ${fixed(one.withPerSecond, 1)} requests per second with the plugin, ${fixed(one.withoutPerSecond, 1)} without.`,
    ),
  )
  return [
    '## Cost of capture, GPU-served',
    'The prefill leg of a request with capture beside the same leg without it, in interleaved pairs; host and device time together. *Added* is with minus without: the median of the pairs and its 95 % interval. *In the engine* leaves out the API server. Two servers of the same flags differ by more than capture costs, so capture was also switched on and off in one server; beside another server, MultiConnector counts too.',
    markdownTable(
      [
        'model',
        'without capture',
        'prompt tokens',
        'pairs',
        'leg without, ms',
        'added to the leg, ms',
        'in the engine, ms',
        'target',
      ],
      2,
      cells.map(({ model, cell }) => [
        `${model.name}, ${model.layers} × ${model.experts}`,
        cell.switched ? 'the same server, capture off' : 'another server, without the plugin',
        whole(cell.promptTokens),
        whole(cell.withMs.length),
        fixed(median(cell.withoutMs), 2),
        withInterval(cell.addedMs.median),
        withInterval(cell.engineAddedMs.median),
        cell.switched ? targetInWords(model, cell) : '·',
      ]),
    ),
    ...(throughput.length === 0 ? [] : [throughput.join(' ')]),
  ]
}

type CostCell = ResultOf<'capture-cost'>['captureCost']['cells'][number]
type Interval = CostCell['addedMs']['median']

const withInterval = (of: Interval): string =>
  `${signed(of.median, 2)} (${signed(of.low, 2)} to ${signed(of.high, 2)})`

function targetInWords(
  { layers, experts }: ResultOf<'capture-cost'>['model'],
  { promptTokens, addedMs: { median: of } }: CostCell,
): string {
  const isPapers = layers === PAPER.layers && experts === PAPER.experts
  if (!isPapers && promptTokens !== TARGET.promptTokens) return '·'
  const { ms } = isPapers ? PAPER : TARGET
  const verdict =
    of.high <= ms ? 'met' : of.low > ms ? 'missed' : of.median <= ms ? 'met at the median' : 'not decided'
  return `${fixed(ms, isPapers ? 2 : 1)}: ${verdict}`
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
          'Rows with *a second capture in the same forward pass*: the ids of every router are also copied to a buffer of their own, and counts made from it are compared with the plugin’s. In the other rows a server with the plugin is compared with a server that has the same flags and vLLM’s own capture (`--enable-return-routed-experts`): the same prompts, captured by other code in another process, where the engines themselves may choose differently. Decode choices are compared where texts are equal; servers that do not record them have none. [The guide](../guides/vllm.md#choices-that-differ-between-servers) has the conclusion.',
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
    ...(pd.equalTexts === pd.prompts
      ? []
      : [
          'As many differ under both policies and at every pass. The likely cause: a decode engine computes the last token of a prompt alone, one server together with the others, and greedy decoding follows the last bits of a logit.',
        ]),
    ...(pd.coldEqual === undefined ? [] : [`On the first, cold pass: ${of(pd.coldEqual)}.`]),
    ...(pd.selfColdWarmEqual === undefined
      ? []
      : [`The server alone, cold beside warm: ${of(pd.selfColdWarmEqual)}.`]),
    ...(pd.signaturesRejected === undefined ? [] : [`${many(pd.signaturesRejected, 'signature')} rejected.`]),
    ...(pd.transfersFailed === undefined ? [] : [`${many(pd.transfersFailed, 'transfer')} failed.`]),
    ...(pd.ticketsLeft === undefined ? [] : [`${many(pd.ticketsLeft, 'ticket')} left.`]),
  ].join(' ')
}
