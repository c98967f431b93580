/** What the flags of `eldr simulate` ask for, or why they contradict each other: found out before anything is read. */
import { EldrError } from '../errors.ts'
import { POLICIES } from '../policy/decode-policy.ts'
import type { StudyData } from '../sim/study.ts'
import { parseTopology, type Topology } from '../sim/topology.ts'
import { parseVariant } from '../sim/variant.ts'
import type { SimulateFlags } from './simulate.ts'

export function studyOf(flags: SimulateFlags): StudyData {
  const topology = parseTopology(flags.topology)
  checkPolicies(flags.policies)
  checkTogether(flags, topology)
  const {
    trace,
    artifact,
    profile,
    requests,
    rows,
    placement,
    prefillPolicy,
    prefixCache,
    workload,
    maxPrompt,
    maxOutput,
  } = flags
  const slo = {
    ...(flags.sloTtft && { ttftMs: flags.sloTtft }),
    ...(flags.sloTpot && { tpotMs: flags.sloTpot }),
  }
  return {
    trace,
    profile,
    topology: flags.topology,
    requests,
    arrivals: flags.arrivals ?? 'poisson',
    rows,
    ...(artifact !== undefined && { artifact }),
    ...(workload !== undefined && {
      workload: {
        file: workload,
        ...(maxPrompt && { promptTokens: maxPrompt }),
        ...(maxOutput && { outputTokens: maxOutput }),
      },
    }),
    ...(placement && { placement }),
    ...(prefillPolicy && { prefillPolicy }),
    ...(prefixCache !== undefined && { prefixCacheTokens: prefixCache }),
    ...(Object.keys(slo).length > 0 && { slo }),
  }
}

export function checkPolicies(policies: readonly string[]): void {
  const unknown = policies.find(name => parseVariant(name) === undefined)
  if (unknown === undefined) return
  throw wrong(
    `policy ${JSON.stringify(unknown)}`,
    `one of ${POLICIES.join(', ')}, or eldr@TAU`,
    'Name a policy.',
  )
}

function checkTogether(flags: SimulateFlags, { prefill, ranks }: Topology): void {
  const { topology, placement, workload } = flags
  if (placement !== undefined && ranks === 1)
    throw wrong(
      `--placement with ${topology}`,
      'decode workers of several ranks',
      'Name a topology such as 8D×EP4, or leave it out.',
    )
  const ofPrefill = given({
    '--slo-ttft': flags.sloTtft,
    '--prefill-policy': flags.prefillPolicy,
    '--prefix-cache': flags.prefixCache,
  })
  if (ofPrefill !== undefined && prefill === 0)
    throw wrong(
      `${ofPrefill} with ${topology}, which has no prefill`,
      'prefill workers',
      'Name a topology such as 8P16D, or leave it out.',
    )
  if (workload !== undefined && flags.arrivals !== undefined)
    throw wrong(
      '--arrivals with --workload',
      'one of them',
      'Leave one out: a workload file says when requests come.',
    )
  const ofWorkload = given({ '--max-prompt': flags.maxPrompt, '--max-output': flags.maxOutput })
  if (ofWorkload !== undefined && workload === undefined)
    throw wrong(
      `${ofWorkload} without --workload`,
      'both',
      'Name the file whose lengths are cut: a trace has lengths of its own.',
    )
}

/** The first flag that has a value. */
function given(flags: Readonly<Record<string, unknown>>): string | undefined {
  return Object.keys(flags).find(name => flags[name] !== undefined)
}

function wrong(found: string, expected: string, todo: string): EldrError {
  return new EldrError('ELDR_USAGE', { found, expected, todo })
}
