/**
 * Files of a cluster that computes a model: the model, a trace of it for fits and simulations, and that
 * trace's prompts.
 */
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

/** `sendsPrompts`: the cluster gets a built-in load. */
export async function tinyFiles(
  flags: TinyFlags,
  pace: 'profile' | 'real',
  sendsPrompts: boolean,
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
  const sourceOf = sendsPrompts
    ? await capturedPrompts(flags.prompts ?? SHIPPED_PROMPTS, files.rows)
    : undefined
  return { ...files, model: name, backEnd, sourceOf }
}

/** A trace of one model says nothing about the experts of another. */
async function checkShape(trace: string, name: string, { layers, experts, topK }: ModelShape): Promise<void> {
  const text = (shape: ModelShape) => `${shape.layers} layers × ${shape.experts} experts, top ${shape.topK}`
  const recorded = await withTrace(trace, async opened => ({
    layers: opened.layers,
    experts: opened.experts,
    topK: opened.topK,
  }))
  if (recorded.layers === layers && recorded.experts === experts && recorded.topK === topK) return
  throw new EldrError('ELDR_USAGE', {
    found: `model ${name} (${text({ layers, experts, topK })}) with trace ${basename(trace)} (${text(recorded)})`,
    expected: 'a trace of this model',
    todo: 'Capture one with `eldr worker --backend tiny --model FOLDER` and `eldr calibrate`, and pass it with --trace.',
  })
}

/**
 * No profile gives the real-time cost of an expert, so more experts cost no time here and no gain is claimed.
 */
function unpriced(profile: CostProfile): CostProfile {
  return { ...profile, decode: { ...profile.decode, perActiveExpertUs: 0, perRequestUs: 0 } }
}
