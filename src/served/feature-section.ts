/** Section of docs/evidence/gpu.md on engine features with the plugin: what was run, and with what result. */
import { markdownTable } from '../report/markdown-table.ts'
import { fixed, percent, whole } from '../report/numbers.ts'
import type { ResultOf } from './result-file.ts'

type Feature = ResultOf<'features'>['features'][number]

const TRANSFER = /^KV transfer: (.*), (\d+) tokens$/
/** `ERROR 11-16 17:41:56 [multiproc_executor.py:901] ` */
const LOG_PREFIX = /(?:DEBUG|INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d \[[\w.]+:\d+\] */
const LONG_NUMBER = /(?<![\w.,=:])\d{4,}(?![\w.])/g

export function featureSection(
  results: readonly ResultOf<'features'>[],
  profiles: readonly ResultOf<'profile'>[] = [],
): string[] {
  const features = results.flatMap(one => one.features)
  if (features.length === 0) return []
  const versions = [...new Set(results.map(({ conditions }) => `vLLM ${conditions.versions.vllm}`))]
  const plain = features.filter(({ feature }) => !TRANSFER.test(feature))
  return [
    '## What was run',
    `${versions.join(', ')}. *Failed* and *not run* have their reason.`,
    ...(plain.length === 0
      ? []
      : [
          markdownTable(['feature', 'verdict', 'note'], 3, [
            ...plain.map(({ feature, verdict, note, figures }) => [
              feature,
              verdict,
              figures?.stepMs === undefined
                ? readable(note)
                : `${readable(note)} A step takes ${fixed(figures.stepMs.p50, 2)} ms.`,
            ]),
            ...quantizedRows(profiles),
          ]),
          ...paddingInWords(plain),
        ]),
    ...speculationBlocks(features),
    ...transferBlocks(features),
  ]
}

/** Quantized experts ran as profiles of their shape, with dummy weights. */
function quantizedRows(profiles: readonly ResultOf<'profile'>[]): string[][] {
  return profiles
    .filter(({ model }) => model.dtype === 'mxfp4')
    .map(({ model, profile: { steps, kept, log = [] } }) => {
      const isHidden = log.some(line => line.includes('does not report its choice'))
      return [
        `MXFP4 experts, ${model.name}, kernel ${(model.moeBackend ?? 'not recorded').replaceAll("'", '')}`,
        'run',
        `Dummy weights. Experts were counted in ${whole(kept?.recorded ?? steps.ms.length)} decode steps${isHidden ? '; the kernel does not report its choice, so the router chooses again from the same logits' : ''}. The counts were not compared with another capture.`,
      ]
    })
}

/** What padding does to a step, and who knows of it. */
function paddingInWords(features: readonly Feature[]): string[] {
  const padded = features.flatMap(({ feature, figures }) => {
    const { experts, readExperts, stepMs } = figures ?? {}
    const [, batch] = /^graph padding: batch (\d+)/.exec(feature) ?? []
    return batch === undefined || !experts || !readExperts || !stepMs
      ? []
      : [{ batch, experts, readExperts, ms: stepMs.p50 }]
  })
  const most = padded.toSorted((a, b) => b.readExperts - b.experts - (a.readExperts - a.experts))[0]
  const other = padded.find(one => one.batch === most?.batch && one.readExperts === one.experts)
  if (most === undefined || other === undefined || most.readExperts === most.experts) return []
  return [
    `Policies do not know of graph padding: they weigh the experts that requests need. The plugin’s metric does (\`eldr_experts_read_total\`). With padding a batch of ${most.batch} read ${fixed(most.readExperts, 1)} experts per layer instead of ${fixed(most.experts, 1)}, and a step took ${fixed(most.ms, 2)} ms; in a graph of its own size ${fixed(other.ms, 2)} ms (${other.ms < most.ms ? '−' : '+'}${percent(Math.abs(1 - other.ms / most.ms))}).`,
  ]
}

/** Without the log's prefixes, lines after the error and module names; long numbers are grouped. */
function readable(note: string): string {
  const [before, line] = note.split(LOG_PREFIX, 2)
  return `${before}${line ?? ''}`
    .trim()
    .replaceAll(/\b(?:\w+\.)+(\w+(?:Error|Exception)):/g, '$1:')
    .replaceAll(LONG_NUMBER, digits => whole(Number(digits)))
}

/** Tokens that each prompt generates while steps are observed. */
const GENERATED = 64

function speculationBlocks(features: readonly Feature[]): string[] {
  const rows = features.flatMap(({ feature, figures }) => {
    const { observedSteps: steps, plainObservedSteps: plainSteps } = figures ?? {}
    const { expertsPerStepAllLayers: experts, plainExpertsPerStepAllLayers: plainExperts } = figures ?? {}
    if (!steps || !plainSteps || !experts || !plainExperts) return []
    const change = (value: number, base: number) => {
      const relative = value / base - 1
      return `${relative > 0 ? '+' : ''}${percent(relative)}`
    }
    const { warmSeconds64Tokens: seconds, plainWarmSeconds64Tokens: plainSeconds } = figures!
    return [
      {
        isTimed: seconds !== undefined && plainSeconds !== undefined,
        cells: [
          feature,
          `${whole(figures!.accepted)} of ${whole(figures!.drafted)}`,
          `${fixed(experts, 0)} / ${fixed(plainExperts, 0)} (${change(experts, plainExperts)})`,
          `${whole(steps)} / ${whole(plainSteps)}`,
          `${whole(experts * steps)} / ${whole(plainExperts * plainSteps)} (${change(experts * steps, plainExperts * plainSteps)})`,
          seconds === undefined || plainSeconds === undefined
            ? '·'
            : `${fixed(seconds, 2)} / ${fixed(plainSeconds, 2)}`,
        ],
      },
    ]
  })
  if (rows.length === 0) return []
  const isTimed = rows.some(one => one.isTimed)
  const head = [
    'with drafts / without',
    'drafts accepted',
    'experts per step',
    'steps',
    'experts read in all',
    ...(isTimed ? ['seconds'] : []),
  ]
  return [
    '### Speculative decoding',
    `${whole(features.find(({ figures }) => figures?.observedSteps)?.figures?.prompts)} prompts at once generate ${GENERATED} tokens each. *Experts* are the distinct ones of the target model, summed over the layers, as the plugin counts them; what a draft model reads is not counted. A step with drafts checks several tokens per request, so it reads more experts at the same batch; how many steps are left depends on the drafts that are accepted. The draft model is the target itself, so nearly all of its drafts are accepted: the best case. With n-grams the requests finish at different times; later steps have fewer requests, which is the likely reason for fewer experts per step.${isTimed ? '' : ' Times are left out: each server with drafts was timed while it generated for the first time, which most likely includes compiling kernels. The program now generates once before it measures.'}`,
    markdownTable(
      head,
      1,
      rows.map(({ cells }) => cells.slice(0, head.length)),
    ),
  ]
}

/** One row per configuration, one column per prompt length. */
function transferBlocks(features: readonly Feature[]): string[] {
  const found = features.flatMap(({ feature, figures, verdict }) => {
    const [, how, tokens] = TRANSFER.exec(feature) ?? []
    if (how === undefined) return []
    const shown = figures?.transferMs === undefined ? verdict : fixed(figures.transferMs, 2)
    return [{ how, tokens: Number(tokens), shown }]
  })
  if (found.length === 0) return []
  const lengths = [...new Set(found.map(({ tokens }) => tokens))].toSorted((a, b) => a - b)
  return [
    '### KV transfers',
    'Milliseconds of a NIXL transfer, mean.',
    markdownTable(
      ['connectors', ...lengths.map(tokens => `${whole(tokens)} tokens`)],
      1,
      [...new Set(found.map(({ how }) => how))].map(how => [
        how,
        ...lengths.map(tokens => found.find(one => one.how === how && one.tokens === tokens)?.shown ?? '·'),
      ]),
    ),
  ]
}
