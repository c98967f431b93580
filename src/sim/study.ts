/**
 * A study: policies on one evaluation trace, artifact, profile and topology. `prepare` loads them once in each thread of a sweep and gives
 * the function that runs one job; all jobs of a seed see the same requests at the same times.
 */
import { EldrError } from '../errors.ts'
import { loadProfile } from '../cost/profile-file.ts'
import type { Artifact } from '../fit/artifact.ts'
import { readArtifact } from '../fit/artifact-read.ts'
import { createDecodePolicy, missingFor, type PolicySettings, predictorOf } from '../policy/create-policy.ts'
import { POLICIES, type PolicyName, type RoutableRequest } from '../policy/decode-policy.ts'
import type { Predictor } from '../policy/predictor.ts'
import { prefixHash } from '../policy/prefill-policy.ts'
import { createSigner } from '../signature/signer.ts'
import { TRANSFORM } from '../signature/transform.ts'
import { type Trace, withTrace } from '../trace/trace.ts'
import type { ArrivalSpec } from './arrivals.ts'
import { loadReplay } from './replay.ts'
import type { SimulationResult } from './result.ts'
import { simulate, type SimulationInput } from './simulate.ts'
import type { SweepJob } from './sweep.ts'
import { parseTopology } from './topology.ts'

export interface StudyData {
  readonly trace: string
  readonly artifact?: string
  /** Name of a shipped profile, or a path. */
  readonly profile: string
  readonly topology: string
  readonly requests: number
  readonly arrivals: 'poisson' | 'gamma' | 'on_off'
  readonly rows: 'passes' | 'replacement'
}

/** What is compared: a policy, with a band of its own where one is named, such as eldr@0.2. */
export interface Variant {
  readonly policy: PolicyName
  readonly tau?: number
}

export function parseVariant(text: string): Variant | undefined {
  const [, name, tau] = /^([a-z_]+)(?:@(0(?:\.\d+)?|1(?:\.0+)?))?$/.exec(text) ?? []
  const policy = POLICIES.find(known => known === name)
  if (policy === undefined || (tau !== undefined && policy !== 'eldr')) return undefined
  return { policy, ...(tau !== undefined && { tau: Number(tau) }) }
}

/** `onStep` sees every decode step when it begins. */
export async function prepare(data: StudyData, onStep?: SimulationInput['onStep']): Promise<(job: SweepJob) => SimulationResult> {
  const given = data.artifact === undefined ? undefined : await readArtifact(data.artifact)
  const profile = await loadProfile(data.profile)
  const topology = parseTopology(data.topology)
  return withTrace(data.trace, async trace => {
    if (given !== undefined) checkSameModel(trace, given, data.artifact!)
    const artifact = given && asSeenFrom(trace, given)
    const replay = await loadReplay(trace)
    const featuresOf = await readFeatures(trace, artifact)
    const cost = { perExpert: profile.decode.perActiveExpertUs * profile.shape.layers, perRequest: profile.decode.perRequestUs }
    const settings: PolicySettings = { workers: topology.decode, shape: trace, cost, ...(artifact && { artifact }) }
    const predictor = remembered(predictorOf(settings))
    return ({ variant, rate, seed }) => {
      const { policy, tau } = parseVariant(variant)!
      const decodePolicy = createDecodePolicy(policy, { ...settings, predictor, ...(tau !== undefined && { tau }) })
      if (decodePolicy === undefined) {
        throw new EldrError('ELDR_USAGE', {
          found: `policy ${variant}`,
          expected: missingFor(policy, settings)!,
          todo: 'Give one with --artifact.',
        })
      }
      return simulate({
        workload: { arrivals: arrivalsAt(data.arrivals, rate), rows: data.rows },
        requests: data.requests,
        seed,
        replay,
        profile,
        topology,
        decodePolicy,
        featuresOf,
        ...(topology.prefill > 0 && { prefillPolicy: prefixHash() }),
        ...(onStep && { onStep }),
      }).result
    }
  })
}

function checkSameModel(trace: Trace, { about }: Artifact, file: string): void {
  if (about.layers === trace.layers && about.experts === trace.experts && about.topK === trace.topK) return
  const shape = ({ layers, experts, topK }: { layers: number; experts: number; topK: number }) => `${layers} × ${experts}, top-${topK}`
  throw new EldrError('ELDR_FIT_BAD_OPTION', {
    file,
    found: `an artifact for ${shape(about)}`,
    expected: `${shape(trace)}, as the trace has`,
  })
}

/** Bursts: gamma gaps of shape 0.25 deviate twice as much as Poisson's; on/off is silent for 5 s after each 5 s, on average. */
function arrivalsAt(kind: StudyData['arrivals'], perSecond: number): ArrivalSpec {
  if (kind === 'gamma') return { kind, perSecond, shape: 0.25 }
  if (kind === 'on_off') return { kind, perSecond, onSeconds: 5, offSeconds: 5 }
  return { kind, perSecond }
}

/** Where the trace has no recent counts, an artifact that reads them is used as a gateway would: through its fallback. */
function asSeenFrom(trace: Trace, artifact: Artifact): Artifact {
  const blind = TRANSFORM[artifact.primary.model.transform].source === 'recent' && !trace.has('prefill_recent')
  return blind && artifact.fallback ? { ...artifact, primary: artifact.fallback } : artifact
}

/** What a hand-off would say of each request of the trace; the same objects each time, so that predictions can be remembered. */
async function readFeatures(trace: Trace, artifact: Artifact | undefined): Promise<(request: number) => Omit<RoutableRequest, 'id'>> {
  const cells = trace.layers * trace.experts
  const recent = artifact !== undefined && TRANSFORM[artifact.primary.model.transform].source === 'recent'
  const values = recent ? await trace.prefillRecent() : await trace.prefillCounts()
  const domain = await trace.domain()
  const signer = artifact && createSigner(artifact.primary.model)
  const features = Array.from({ length: trace.requests }, (_, request): Omit<RoutableRequest, 'id'> => {
    const counts = values.subarray(request * cells, (request + 1) * cells)
    const signature = signer?.sign(counts)
    return { counts, ...(signature && { signature }), ...(domain && { domain: domain[request]! }) }
  })
  return request => features[request]!
}

/** A trace's requests come again and again: their chances are predicted once. */
function remembered(predictor: Predictor): Predictor {
  const known = new Map<RoutableRequest['counts'], Float32Array | undefined>()
  return {
    cells: predictor.cells,
    chances(request) {
      if (!known.has(request.counts)) known.set(request.counts, predictor.chances(request)?.slice())
      return known.get(request.counts)
    },
  }
}
