/** What a cluster with a real model runs on: the model, a trace of it to fit and to simulate with, and the prompts of that trace. */
import { basename } from 'node:path'
import type { CostProfile } from '../cost/profile.ts'
import { EldrError } from '../errors.ts'
import { readArtifact } from '../fit/artifact-read.ts'
import { capturedPrompts } from '../load/captured-prompts.ts'
import { withTrace } from '../trace/trace.ts'
import { SHIPPED_PROMPTS, SHIPPED_TINY_TRACE } from '../up/artifact-for.ts'
import { readTinyConfig } from '../worker/tiny/model-folder.ts'
import type { ModelShape } from '../worker/types.ts'
import { clusterFiles, type ClusterFiles } from './up-cluster.ts'
import type { ClusterFlags } from './up.ts'
import { SHIPPED_MODEL } from './worker-back-end.ts'

type TinyFlags = Pick<ClusterFlags, 'trace' | 'profile' | 'artifact' | 'decode' | 'model' | 'prompts'>

/** `loaded`: whether the prompts will be sent. */
export async function tinyFiles(
  flags: TinyFlags,
  pace: 'profile' | 'real',
  loaded: boolean,
): Promise<ClusterFiles> {
  const trace = flags.trace ?? SHIPPED_TINY_TRACE
  const { name, config } = await readTinyConfig(flags.model ?? SHIPPED_MODEL)
  await checkShape(trace, name, config)
  const files = await clusterFiles({ ...flags, trace }, pace === 'real' ? unpriced : undefined)
  const fitted = files.artifact && (await readArtifact(files.artifact.path))
  const backEnd = {
    kind: 'tiny',
    model: flags.model,
    pace: pace === 'real' ? pace : flags.profile,
    recentHalfLife: fitted?.primary.recentHalfLife,
  } as const
  const sourceOf = loaded ? await capturedPrompts(flags.prompts ?? SHIPPED_PROMPTS, files.rows) : undefined
  return { ...files, model: name, backEnd, sourceOf }
}

/** Experts of one model say nothing of another's. */
async function checkShape(trace: string, name: string, { layers, experts, topK }: ModelShape): Promise<void> {
  const say = (shape: ModelShape) => `${shape.layers} layers × ${shape.experts} experts, top ${shape.topK}`
  const recorded = await withTrace(trace, async opened => ({
    layers: opened.layers,
    experts: opened.experts,
    topK: opened.topK,
  }))
  if (recorded.layers === layers && recorded.experts === experts && recorded.topK === topK) return
  throw new EldrError('ELDR_USAGE', {
    found: `the model ${name} (${say({ layers, experts, topK })}) and the trace ${basename(trace)} (${say(recorded)})`,
    expected: 'a trace of the model',
    todo: 'Capture one: `eldr worker --backend tiny --model FOLDER`, then `eldr calibrate`; give it with --trace.',
  })
}

/** What an expert costs in real time no profile says: mixed batches then have more experts and the same time, and no gain is claimed. */
function unpriced(profile: CostProfile): CostProfile {
  return { ...profile, decode: { ...profile.decode, perActiveExpertUs: 0, perRequestUs: 0 } }
}
