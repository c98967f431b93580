/** Section of docs/evidence/gpu.md on engine features with the plugin: what was run, and with what result. */
import { markdownTable } from '../report/markdown-table.ts'
import { fixed, percent, whole } from '../report/numbers.ts'
import type { ResultOf } from './result-file.ts'

type Feature = ResultOf<'features'>['features'][number]

const TRANSFER = /^KV transfer: (.*), (\d+) tokens$/
/** `ERROR 11-16 17:41:56 [multiproc_executor.py:901] ` */
const LOG_PREFIX = /(?:DEBUG|INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d \[[\w.]+:\d+\] */
const LONG_NUMBER = /(?<![\w.,=:])\d{4,}(?![\w.])/g

export function featureSection(results: readonly ResultOf<'features'>[]): string[] {
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
          markdownTable(
            ['feature', 'verdict', 'note'],
            3,
            plain.map(({ feature, verdict, note, figures }) => [
              feature,
              verdict,
              figures?.stepMs === undefined
                ? readable(note)
                : `${readable(note)} A step takes ${fixed(figures.stepMs.p50, 2)} ms.`,
            ]),
          ),
        ]),
    ...speculationBlocks(features),
    ...transferBlocks(features),
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
