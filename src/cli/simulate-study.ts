/** Turns the flags of `eldr simulate` into a study. Contradictions are errors before any file is read. */
import { POLICIES } from '../policy/decode-policy.ts'
import type { StudyData } from '../sim/study.ts'
import { parseTopology, type Topology } from '../sim/topology.ts'
import { COSTS, FORESIGHTS, parseVariant } from '../sim/variant.ts'
import { usageError } from './options.ts'
import { DEFAULTS, type SimulateFlags } from './simulate.ts'

export function studyOf(flags: SimulateFlags): StudyData {
  const topology = parseTopology(flags.topology)
  checkPolicies(flags.policies ?? DEFAULTS.policies)
  checkCombination(flags, topology)
  const {
    trace,
    artifact,
    profile = DEFAULTS.profile,
    requests,
    rows = 'passes',
    placement,
    prefillPolicy,
    prefixCache,
    workload,
    maxPrompt,
    maxOutput,
  } = flags
  if (trace === undefined)
    throw usageError(
      'no --trace',
      'an evaluation trace, or --drift',
      'Pass --trace; --drift has traces of its own.',
    )
  const { sloTtft: ttftMs, sloTpot: tpotMs } = flags
  return {
    trace,
    profile,
    topology: flags.topology,
    requests,
    arrivals: flags.arrivals ?? 'poisson',
    rows,
    artifact,
    workload:
      workload === undefined
        ? undefined
        : { file: workload, promptTokens: maxPrompt, outputTokens: maxOutput },
    placement,
    prefillPolicy,
    prefixCacheTokens: prefixCache,
    slo: ttftMs === undefined && tpotMs === undefined ? undefined : { ttftMs, tpotMs },
  }
}

export function checkPolicies(policies: readonly string[]): void {
  const unknown = policies.find(name => parseVariant(name) === undefined)
  if (unknown === undefined) return
  throw usageError(
    `policy ${JSON.stringify(unknown)}`,
    `one of ${POLICIES.join(', ')}; band@TAU or eldr@TAU; ${[...FORESIGHTS, ...COSTS].map(setting => `union@${setting}`).join(', ')}`,
    'Choose one of these.',
  )
}

function checkCombination(flags: SimulateFlags, { prefill, ranks }: Topology): void {
  const { topology, placement, workload } = flags
  if (placement !== undefined && ranks === 1)
    throw usageError(
      `--placement with ${topology}`,
      'decode workers with several ranks',
      'Use a topology such as 8D×EP4, or remove --placement.',
    )
  const prefillFlag = firstSet({
    '--slo-ttft': flags.sloTtft,
    '--prefill-policy': flags.prefillPolicy,
    '--prefix-cache': flags.prefixCache,
  })
  if (prefillFlag !== undefined && prefill === 0)
    throw usageError(
      `${prefillFlag} with ${topology}, which has no prefill workers`,
      'prefill workers',
      `Use a topology such as 8P16D, or remove ${prefillFlag}.`,
    )
  if (workload !== undefined && flags.arrivals !== undefined)
    throw usageError(
      '--arrivals with --workload',
      'one of them',
      'Remove one: the workload file defines the arrival times.',
    )
  checkLoad(flags)
  const driftFlag = firstSet({ '--calibration': flags.calibration, '--foreign': flags.foreign })
  if (driftFlag !== undefined)
    throw usageError(`${driftFlag} without --drift`, 'both', `Add --drift, or remove ${driftFlag}.`)
  const workloadFlag = firstSet({ '--max-prompt': flags.maxPrompt, '--max-output': flags.maxOutput })
  if (workloadFlag !== undefined && workload === undefined)
    throw usageError(
      `${workloadFlag} without --workload`,
      'both',
      'Pass the workload file whose lengths are limited; lengths of a trace are fixed.',
    )
}

function checkLoad(flags: SimulateFlags): void {
  const { prompts, workload } = flags
  const own = {
    '--recorded-prompts': flags.recordedPrompts,
    '--duration': flags.duration,
    '--warmup-seconds': flags.warmupSeconds,
  }
  const lonely = firstSet(own)
  if (prompts === undefined && lonely !== undefined)
    throw usageError(`${lonely} without --prompts`, 'both', 'Pass the load file of eldr bench.')
  if (prompts === undefined) return
  if (workload !== undefined)
    throw usageError('--prompts and --workload', 'one of them', 'Remove one: each defines the requests.')
  if (flags.recordedPrompts === undefined || flags.duration === undefined)
    throw usageError(
      '--prompts alone',
      '--recorded-prompts and --duration with it',
      'Pass the prompts from which the trace was recorded, and how long the load lasts.',
    )
}

/** The first flag that was given. */
export function firstSet(flags: Readonly<Record<string, unknown>>): string | undefined {
  return Object.keys(flags).find(name => flags[name] !== undefined)
}
