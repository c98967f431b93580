/** The artifact that a cluster routes by: fitted from the calibration trace beside the evaluation trace, kept for the next start. */
import { mkdir, stat } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { EldrError } from '../errors.ts'
import { readArtifact } from '../fit/artifact-read.ts'
import { writeArtifact } from '../fit/artifact-write.ts'
import { fit } from '../fit/fit.ts'
import { createStages } from '../fit/stages.ts'
import { withTrace } from '../trace/trace.ts'

/** The same file from src/up and from dist/up. */
export const SHIPPED_TRACE = fileURLToPath(
  new URL('../../data/lab16-task.evaluation.safetensors', import.meta.url),
)
/** Of the model that ships, and the prompts that it was captured of. */
export const SHIPPED_TINY_TRACE = fileURLToPath(
  new URL('../../data/tiny6-prompts.evaluation.safetensors', import.meta.url),
)
export const SHIPPED_PROMPTS = fileURLToPath(new URL('../../data/prompts/held-out.jsonl', import.meta.url))
const FIT = {
  transform: 'auto',
  layers: 'auto',
  balance: 'exact',
  restarts: 3,
  pairs: 20_000,
  seed: 0,
  batch: 32,
} as const

const [EVALUATION, CALIBRATION] = ['.evaluation.safetensors', '.calibration.safetensors']

export interface FoundArtifact {
  readonly path: string
  /** Whether it was fitted now, and from what. */
  readonly fitted?: { readonly from: string; readonly ms: number }
}

/** x.evaluation.safetensors → x.calibration.safetensors, where that is there. */
async function calibrationBeside(trace: string): Promise<string | undefined> {
  if (!trace.endsWith(EVALUATION)) return undefined
  const beside = `${trace.slice(0, -EVALUATION.length)}${CALIBRATION}`
  return (await stat(beside).catch(() => undefined))?.isFile() ? beside : undefined
}

/** Undefined where there is nothing to fit from. `folder` is made when it is needed. */
export async function artifactFor(
  trace: string,
  workers: number,
  folder: string,
): Promise<FoundArtifact | undefined> {
  const calibration = await calibrationBeside(trace)
  if (calibration === undefined) return undefined
  const path = join(folder, `${basename(calibration, CALIBRATION)}-${workers}.artifact.safetensors`)
  return withTrace(calibration, async opened => {
    if (await isOf(path, await opened.sha256(), workers)) return { path }
    const from = performance.now()
    const { artifact } = await fit(opened, { ...FIT, workers }, createStages())
    await mkdir(folder, { recursive: true }).catch((cause: unknown) => {
      throw new EldrError('ELDR_FILE_UNWRITABLE', {
        file: folder,
        found: 'no folder, and none could be made',
        todo: 'Run it where a folder can be made, or name an artifact with --artifact.',
        cause,
      })
    })
    await writeArtifact(path, artifact)
    return { path, fitted: { from: calibration, ms: performance.now() - from } }
  })
}

async function isOf(path: string, traceSha256: string, workers: number): Promise<boolean> {
  const about = await readArtifact(path).then(
    artifact => artifact.about,
    () => undefined, // not there, or not whole: it is made anew
  )
  return about?.traceSha256 === traceSha256 && about.workers === workers
}
