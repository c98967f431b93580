import { constants } from 'node:fs'
import { access, lstat, realpath, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import { EldrError } from '../errors.ts'

/**
 * Checks before minutes of work start that every output's folder exists and is writable, and that no output
 * is also an input or another output. `mayReplaceInput`: the one output that may overwrite an input (the
 * artifact of a refit).
 */
export async function checkOutputs(
  inputs: readonly (string | undefined)[],
  outputs: readonly (string | undefined)[],
  mayReplaceInput?: string,
): Promise<void> {
  const taken = new Map<string, string>()
  for (const input of inputs) {
    if (input === undefined) continue
    if (mayReplaceInput === undefined || (await canonical(input)) !== (await canonical(mayReplaceInput)))
      taken.set(await canonical(input), inputs.length === 1 ? 'the input' : 'an input')
  }
  for (const file of outputs) {
    if (file === undefined) continue
    if (file === '')
      throw new EldrError('ELDR_USAGE', {
        found: 'an empty output file name',
        expected: 'a path',
        todo: 'Name a file.',
      })
    const linkStats = await lstat(file).catch(() => undefined)
    if (linkStats?.isSymbolicLink() && !(await stat(file).catch(() => undefined)))
      throw new EldrError('ELDR_FILE_UNWRITABLE', { file, found: 'a symbolic link to a missing file' })
    const stats = await stat(file).catch(() => undefined)
    if (stats && !stats.isFile())
      throw new EldrError('ELDR_FILE_UNWRITABLE', {
        file,
        found: 'something other than a regular file at this path',
      })
    const folder = dirname(file)
    await access(folder, constants.W_OK).catch((cause: unknown) => {
      throw new EldrError('ELDR_FILE_UNWRITABLE', {
        file,
        found: `folder ${folder} is missing or not writable`,
        cause,
      })
    })
    const path = await canonical(file)
    if (taken.has(path))
      throw new EldrError('ELDR_USAGE', {
        file,
        found: `the same path for ${taken.get(path)} and an output`,
        expected: 'a separate file for each output',
        todo: 'Choose another file.',
      })
    taken.set(path, 'another output')
  }
}

/** Resolves symbolic links; for a file that does not exist yet, those of its folder. */
async function canonical(path: string): Promise<string> {
  return realpath(path).catch(
    async () =>
      `${await realpath(dirname(path)).catch(() => dirname(path))}/${path.slice(path.lastIndexOf('/') + 1)}`,
  )
}

export function checkPlacementFlags({
  ranks,
  placementOut,
}: {
  readonly ranks?: number
  readonly placementOut?: string
}): void {
  if (placementOut === undefined || ranks !== undefined) return
  throw new EldrError('ELDR_USAGE', {
    found: '--placement-out without --ranks',
    expected: 'both',
    todo: 'Add --ranks, the number of ranks to place experts on.',
  })
}

/** x.artifact.safetensors → x.placement.safetensors, anything.safetensors → anything.placement.safetensors */
export function placementPath(artifact: string): string {
  return `${artifact.replace(/(\.artifact)?\.safetensors$/, '')}.placement.safetensors`
}

/**
 * x.calibration.safetensors → x.evaluation.safetensors, anything.safetensors →
 * anything.evaluation.safetensors
 */
export function evaluationPath(calibration: string): string {
  return `${calibration.replace(/(\.calibration)?\.safetensors$/, '')}.evaluation.safetensors`
}

/** The opposite; a name without evaluation gets it as a new part. */
export function calibrationPath(evaluation: string): string {
  return `${evaluation.replace(/(\.evaluation)?\.safetensors$/, '')}.calibration.safetensors`
}
