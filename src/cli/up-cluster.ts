/** Turns flags into cluster settings, and reads the files that the cluster runs on. */
import { availableParallelism } from 'node:os'
import { loadProfile } from '../cost/profile-file.ts'
import type { CostProfile } from '../cost/profile.ts'
import { EldrError } from '../errors.ts'
import type { SourceOfRows } from '../load/captured-prompts.ts'
import { readTraceRows, type TraceRows } from '../load/synthetic-sources.ts'
import { DEFAULT_POLICY, needsArtifact, policyNamed } from '../policy/decode-policy.ts'
import { parseTopology, topologyText } from '../sim/topology.ts'
import { withTrace } from '../trace/trace.ts'
import { artifactFor, type FoundArtifact, SHIPPED_TRACE } from '../up/artifact-for.ts'
import type { ClusterBackEnd, ClusterSettings } from '../up/cluster.ts'
import { type MixedBatch, mixedBatch } from '../up/mixed-batch.ts'
import type { ClusterFlags } from './up.ts'

/** Keeps fitted artifacts between runs; `eldr reproduce` writes here too. */
export const OUT_FOLDER = 'eldr-out'

/** Gives batches of about twelve, where requests share experts. */
const RATE_PER_DECODER = { replay: 25, tiny: 9 } as const
/**
 * Requests per second that one core sustains at speed 1 for workers, gateway and client, with room for other
 * work.
 */
const RATE_PER_CORE = { replay: 30, tiny: 3 } as const

export interface ClusterFiles {
  readonly trace: string
  readonly rows: TraceRows
  readonly model: string
  /** Shape of the recorded model: layers × experts, top-k. */
  readonly shape: string
  readonly profile: CostProfile
  readonly mixed: MixedBatch
  readonly artifact: FoundArtifact | undefined
  /** Default: replay the trace. */
  readonly backEnd?: ClusterBackEnd
  /** Real prompts to send. Default: synthetic ones. */
  readonly sourceOf?: SourceOfRows | undefined
}

/** Reads the files here, so that a bad file is reported once and not by every process. */
export async function clusterFiles(
  flags: Pick<ClusterFlags, 'trace' | 'profile' | 'artifact' | 'decode'>,
  costs = (profile: CostProfile) => profile,
): Promise<ClusterFiles> {
  const trace = flags.trace ?? SHIPPED_TRACE
  const profile = await loadProfile(flags.profile)
  const rows = await readTraceRows(trace)
  const read = await withTrace(trace, async opened => ({
    model: opened.model,
    shape: `${opened.layers} MoE layers × ${opened.experts} experts, top-${opened.topK}`,
    mixed: await mixedBatch(opened, costs(profile)),
  }))
  const artifact =
    flags.artifact === undefined
      ? await artifactFor(trace, flags.decode, OUT_FOLDER)
      : { path: flags.artifact }
  return { trace, rows, profile, ...read, artifact }
}

export function clusterSettings(
  flags: Omit<ClusterFlags, 'backend'>,
  { trace, artifact, backEnd = { kind: 'replay', trace } }: ClusterFiles,
  wanted?: string,
): ClusterSettings {
  const policy = wanted ?? DEFAULT_POLICY
  const described = policyNamed(policy)
  if (artifact === undefined && described !== undefined && needsArtifact(described))
    throw new EldrError('ELDR_USAGE', {
      found: `policy ${policy} and no calibration trace next to ${trace}`,
      expected: 'an artifact',
      todo: 'Pass one with --artifact, or use a policy that needs none, such as union.',
    })
  const { prefill, decode, host, port, profile, speed } = flags
  return { prefill, decode, host, port, backEnd, profile, speed, policy, artifact: artifact?.path }
}

export function topologyOf({ prefill, decode }: Pick<ClusterFlags, 'prefill' | 'decode'>): string {
  return topologyText(parseTopology(`${prefill}P${decode}D`))
}

/** Requests per second of profile time. */
export function defaultRate({ decode, backend }: Pick<ClusterFlags, 'decode' | 'backend'>): number {
  return RATE_PER_DECODER[backend] * decode
}

/** The speed at which this machine sustains the rate: 1, or less in steps of 0.05. */
export function affordableSpeed(rate: number, { backend }: Pick<ClusterFlags, 'backend'>): number {
  const speed = Math.floor((20 * RATE_PER_CORE[backend] * availableParallelism()) / rate) / 20
  return Math.min(1, Math.max(0.05, speed))
}

/** A command that users can paste into a shell. */
export function curlLine(url: string, model: string): string {
  const body = JSON.stringify({ model, prompt: 'Requests that share experts share a worker', max_tokens: 24 })
  return `curl ${url}/v1/completions -H 'content-type: application/json' -d '${body}'`
}
