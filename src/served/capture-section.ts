/** Sections of docs/evidence/gpu.md on capture: its cost, and whether its counts are exact. */
import { markdownTable } from '../report/markdown-table.ts'
import { fixed, many, whole } from '../report/numbers.ts'
import type { ResultOf } from './result-file.ts'
import { median, signed, withInterval } from './capture-numbers.ts'

/** Targets for what capture adds to a prefill leg, and the paper's figure for Qwen3-30B-A3B (Table 1). */
const TARGET = { promptTokens: 2048, ms: 0.3 }
const PAPER = { layers: 48, experts: 128, ms: 0.71 }

export function captureCostSection(results: readonly ResultOf<'capture-cost'>[]): string[] {
  const cells = results.flatMap(({ model, captureCost }) => captureCost.cells.map(cell => ({ model, cell })))
  if (cells.length === 0) return []
  const throughput = results.flatMap(({ model, captureCost }) =>
    (captureCost.throughput ?? []).map(
      (one, at) =>
        `${whole(one.concurrency)} requests of ${whole(one.promptTokens)} tokens at once, ${model.name}, run ${at + 1}: ${fixed(one.withPerSecond, 1)} requests per second with the plugin, ${fixed(one.withoutPerSecond, 1)} without (${signed(100 * (one.withPerSecond / one.withoutPerSecond - 1), 0)}\u00a0%).`,
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
    ...verdictsInWords(cells),
    ...(throughput.length === 0 ? [] : [`${throughput.join(' ')} ${throughputInWords(results)}`]),
  ]
}

/** One sentence for each model that has a target. */
function verdictsInWords(cells: readonly { readonly model: Model; readonly cell: CostCell }[]): string[] {
  const judged = cells.flatMap(({ model, cell }) => {
    const target = cell.switched ? targetOf(model, cell) : undefined
    return target === undefined ? [] : [{ model, cell, ...target }]
  })
  return [...new Set(judged.map(({ model }) => model.name))].map(name => {
    const own = judged.filter(({ model }) => model.name === name)
    const { model, shown } = own[0]!
    const verdicts = own.map(({ verdict, cell }) => `${verdict} at ${whole(cell.promptTokens)} tokens`)
    const unclear = own.some(({ verdict }) => verdict === UNDECIDED)
      ? ' Undecided: the interval has both zero and the target in it.'
      : ''
    return `**The target of ${shown} ms with ${model.layers} × ${model.experts}: ${verdicts.join(', ')}.**${unclear}`
  })
}

function throughputInWords(results: readonly ResultOf<'capture-cost'>[]): string {
  const all = results.flatMap(({ captureCost }) => captureCost.throughput ?? [])
  return all.every(({ withPerSecond, withoutPerSecond }) => withPerSecond < 0.97 * withoutPerSecond)
    ? 'So a prefill engine with a full queue serves fewer requests with the plugin. These are two servers, so MultiConnector and what else differs between servers count too; the share of capture was not measured.'
    : 'No loss of throughput can be told from these runs.'
}

type Model = ResultOf<'capture-cost'>['model']
type CostCell = ResultOf<'capture-cost'>['captureCost']['cells'][number]

const UNDECIDED = 'undecided'

/** Undefined if there is no target for the model and the length. */
function targetOf(
  { layers, experts }: Model,
  { promptTokens, addedMs: { median: of } }: CostCell,
): { readonly shown: string; readonly verdict: string } | undefined {
  const isPapers = layers === PAPER.layers && experts === PAPER.experts
  if (!isPapers && promptTokens !== TARGET.promptTokens) return undefined
  const { ms } = isPapers ? PAPER : TARGET
  const shown = fixed(ms, isPapers ? 2 : 1)
  if (of.high <= ms) return { shown, verdict: 'met' }
  if (of.low > ms) return { shown, verdict: 'missed' }
  if (of.median <= ms) return { shown, verdict: 'met at the median' }
  return { shown, verdict: of.low > 0 ? 'not met at the median' : UNDECIDED }
}

function targetInWords(model: Model, cell: CostCell): string {
  const target = targetOf(model, cell)
  return target === undefined ? '·' : `${target.shown}: ${target.verdict}`
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
          ...(cases.some(({ name }) => name.startsWith(BLOCK_COUNTS))
            ? [
                '*Counts per block* is a form of the store that no longer exists, and all rows beside vLLM’s own capture are from before the plugin’s kernels were rewritten. The evidence for the present plugin is the rows with a second capture in the same forward pass.',
              ]
            : []),
        ]),
    ...pd.map(pdInWords),
  ]
}

/** Setting `store: blocks` of earlier plugins. */
const BLOCK_COUNTS = 'counts per block'

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
          'The number of texts that differ is the same under both policies and in every pass. The likely cause: a decode engine computes the last token of a prompt in a step of its own, while one server computes it together with the rest of the prompt. That changes the last bits of the logits, and greedy decoding follows them.',
        ]),
    ...(pd.policiesEqual === undefined
      ? []
      : [
          `Texts under the two policies equal each other in ${of(pd.policiesEqual)} one by one${pd.policiesAtOnceEqual === undefined ? '' : ` and in ${of(pd.policiesAtOnceEqual)} at once`}.`,
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
