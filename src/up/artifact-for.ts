/**
 * The artifact of an embedded cluster: fitted from the calibration trace next to the evaluation trace and
 * kept for the next start.
 */
import { mkdir, stat } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { EldrError } from '../errors.ts'
import { readArtifact } from '../fit/artifact-read.ts'
import { writeArtifact } from '../fit/artifact-write.ts'
import { fit, FIT_DEFAULTS } from '../fit/fit.ts'
import { createStages } from '../fit/stages.ts'
import { withTrace } from '../trace/trace.ts'

/** The relative path works from both src/up and dist/up. */
export const SHIPPED_TRACE = fileURLToPath(
  new URL('../../data/lab16-task.evaluation.safetensors', import.meta.url),
)
/** Trace of the shipped model, and the prompts from which it was captured. */
export const SHIPPED_TINY_TRACE = fileURLToPath(
  new URL('../../data/tiny6-prompts.evaluation.safetensors', import.meta.url),
)
export const SHIPPED_PROMPTS = fileURLToPath(new URL('../../data/prompts/held-out.jsonl', import.meta.url))

const [EVALUATION, CALIBRATION] = ['.evaluation.safetensors', '.calibration.safetensors']

export interface FoundArtifact {
  readonly path: string
  /** Set if it was fitted now: from which trace and how long it took. */
  readonly fitted?: { readonly from: string; readonly ms: number }
}

/** x.evaluation.safetensors → x.calibration.safetensors, if that exists. */
async function calibrationNextTo(trace: string): Promise<string | undefined> {
  if (!trace.endsWith(EVALUATION)) return undefined
  const calibration = `${trace.slice(0, -EVALUATION.length)}${CALIBRATION}`
  return (await stat(calibration).catch(() => undefined))?.isFile() ? calibration : undefined
}

/** Undefined without a calibration trace. Creates `folder` if needed. */
export async function artifactFor(
  trace: string,
  workers: number,
  folder: string,
): Promise<FoundArtifact | undefined> {
  const calibration = await calibrationNextTo(trace)
  if (calibration === undefined) return undefined
  const path = join(folder, `${basename(calibration, CALIBRATION)}-${workers}.artifact.safetensors`)
  return withTrace(calibration, async opened => {
    if (await matches(path, await opened.sha256(), workers)) return { path }
    const from = performance.now()
    const { artifact } = await fit(opened, { ...FIT_DEFAULTS, workers }, createStages())
    await mkdir(folder, { recursive: true }).catch((cause: unknown) => {
      throw new EldrError('ELDR_FILE_UNWRITABLE', {
        file: folder,
        found: 'the folder does not exist and cannot be created',
        todo: 'Run the command in a writable folder, or pass an artifact with --artifact.',
        cause,
      })
    })
    await writeArtifact(path, artifact)
    return { path, fitted: { from: calibration, ms: performance.now() - from } }
  })
}

async function matches(path: string, traceSha256: string, workers: number): Promise<boolean> {
  const about = await readArtifact(path).then(
    artifact => artifact.about,
    () => undefined, // missing or damaged: fit again
  )
  return about?.traceSha256 === traceSha256 && about.workers === workers
}
