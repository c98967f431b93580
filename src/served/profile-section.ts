/** Section of docs/evidence/gpu.md on profiles: a served step beside the same shape in plain torch. */
import { type CostProfile, stepUs } from '../cost/profile.ts'
import { markdownTable } from '../report/markdown-table.ts'
import { fixed, percent, whole } from '../report/numbers.ts'
import type { StepFit } from './step-fit.ts'

export interface ProfiledShape {
  readonly served: CostProfile
  readonly fit: StepFit
  /** The same shape, timed without an engine; absent if it was not. */
  readonly torch?: CostProfile
  readonly bytesPerExpert?: number
  /** Of the served weights; plain torch has bfloat16. */
  readonly dtype?: string
}

/**
 * A step for comparison: requests, the share of the experts that they activate, and tokens of context each.
 */
const BATCH = 32
const ACTIVE_SHARE = 0.6
const CONTEXT = 512

export function profileSection(shapes: readonly ProfiledShape[]): string[] {
  if (shapes.length === 0) return []
  return [
    '## Profiles from a served engine',
    `One engine alone on the GPU. The served profile is fitted to the steps that vLLM ran, with scheduler, sampling and host; the plain-torch profile times the layers as one CUDA graph without an engine. The last columns are a step of ${BATCH} requests with ${CONTEXT} tokens of context each that activates ${percent(ACTIVE_SHARE)} of the experts.`,
    markdownTable(
      [
        'profile',
        'from',
        'µs per expert and layer',
        'weights read, TB/s',
        'µs per request',
        'µs per step, fixed',
        'host µs',
        'fit error: median, p90',
        'step ms',
        'against torch',
      ],
      2,
      shapes.flatMap((shape, at) => [
        profileRow(shape, shape.served),
        // Shapes are sorted by name: two kernels of one shape are neighbours.
        ...(shape.torch === undefined || shape.torch.name === shapes[at + 1]?.torch?.name
          ? []
          : [profileRow(shape, shape.torch)]),
      ]),
    ),
    ...(shapes.some(({ torch }) => torch !== undefined)
      ? [
          'The served and the plain-torch profile of a shape differ because they run different kernels (vLLM’s fused MoE kernel in CUDA graphs beside the grouped GEMM of `bench/gpu`), which shows in the time per expert, and because a served step also contains scheduling, sampling and output, which shows in the fixed time and the time per request.',
        ]
      : []),
    ...quantizedInWords(shapes),
    ...rangesOf(shapes),
    ...(shapes.some(({ served }) => served.name.endsWith('-marlin'))
      ? [
          '`-marlin`: GPT-OSS with `--moe-backend marlin`. Its default MXFP4 kernel does not report which experts it chose; the plugin lets the router choose again from the same logits there, so experts were counted with both, and Marlin is not needed for capture.',
        ]
      : []),
    `Files: ${shapes.map(({ served }) => `\`profiles/${served.name}.json\``).join(', ')}. Noise: the steps of a served profile vary around the modelled time as the recorded ones did.`,
  ]
}

/** Profiles that do not describe every batch. */
function rangesOf(shapes: readonly ProfiledShape[]): string[] {
  const found = shapes.flatMap(({ served, fit }) =>
    fit.holds === undefined
      ? []
      : [
          `- \`${served.name}\`: ${fit.holds[0]!.toLowerCase()}${fit.holds.slice(1)}${served.decode.host === undefined ? '' : ' Small batches wait for the host, whose part is modelled as one constant.'}`,
        ],
  )
  if (found.length === 0) return []
  return ['Batches that a profile does not describe:', found.join('\n')]
}

/** Shapes whose served weights have fewer bytes than those in plain torch. */
function quantizedInWords(shapes: readonly ProfiledShape[]): string[] {
  const found = shapes.filter(({ torch, dtype = 'bfloat16' }) => torch !== undefined && dtype !== 'bfloat16')
  if (found.length === 0) return []
  const dtypes = [...new Set(found.map(({ dtype }) => dtype!.toUpperCase()))].join(', ')
  const ratios = found.map(({ served, torch }) =>
    percent(served.decode.perActiveExpertUs / torch!.decode.perActiveExpertUs),
  )
  const names = [...new Set(found.map(({ torch }) => `\`${torch!.name}\``))].join(', ')
  return [
    `${names}: here the main reason is another one. Plain torch reads experts in bfloat16, the served engine in ${dtypes}, which has about a quarter of the bytes; an expert takes ${[...new Set(ratios)].join(' and ')} of the time. *Weights read* is blank there because the results do not record the bytes of a quantized expert.`,
  ]
}

function profileRow({ served, fit, torch, bytesPerExpert }: ProfiledShape, profile: CostProfile): string[] {
  const { decode, shape } = profile
  const isServed = profile === served
  const ms = stepMs(profile)
  const against = isServed && torch !== undefined ? ms / stepMs(torch) - 1 : undefined
  return [
    profile.name,
    isServed ? 'GPU-served' : 'plain torch',
    fixed(decode.perActiveExpertUs, 2),
    bytesPerExpert === undefined ? '·' : fixed(bytesPerExpert / decode.perActiveExpertUs / 1e6, 2),
    fixed(decode.perRequestUs, 1),
    whole(decode.baseUs + shape.layers * decode.perLayerUs),
    decode.host === undefined ? 'not apart' : whole(decode.host.baseUs),
    isServed ? `${percent(fit.error.median, 1)}, ${percent(fit.error.p90, 1)}` : 'see the file',
    fixed(ms, 2),
    against === undefined ? '·' : `${against > 0 ? '+' : ''}${percent(against)}`,
  ]
}

function stepMs(profile: CostProfile): number {
  const windows = profile.decode.windows?.map(({ tokens }) => BATCH * Math.min(CONTEXT, tokens))
  return stepUs(profile, BATCH, ACTIVE_SHARE * profile.shape.experts, BATCH * CONTEXT, windows) / 1000
}
