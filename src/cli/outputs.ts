import { constants } from 'node:fs'
import { access, lstat, realpath, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import { EldrError } from '../errors.ts'

/**
 * Finds out before minutes of work, not after: each output's folder is there and can be written, and no output is an input or another
 * output. A re-fit may replace its input by its artifact, and by nothing else.
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
        found: 'an empty name for an output',
        expected: 'a path',
        todo: 'Name a file.',
      })
    const link = await lstat(file).catch(() => undefined)
    if (link?.isSymbolicLink() && !(await stat(file).catch(() => undefined)))
      throw new EldrError('ELDR_FILE_UNWRITABLE', { file, found: 'a link to a file that is not there' })
    const there = await stat(file).catch(() => undefined)
    if (there && !there.isFile())
      throw new EldrError('ELDR_FILE_UNWRITABLE', {
        file,
        found: 'something else than a regular file in its place',
      })
    const folder = dirname(file)
    await access(folder, constants.W_OK).catch((cause: unknown) => {
      throw new EldrError('ELDR_FILE_UNWRITABLE', {
        file,
        found: `no folder ${folder} that can be written to`,
        cause,
      })
    })
    const path = await canonical(file)
    if (taken.has(path))
      throw new EldrError('ELDR_USAGE', {
        file,
        found: `${taken.get(path)} and an output with the same path`,
        expected: 'a file of its own for each output',
        todo: 'Name another file.',
      })
    taken.set(path, 'another output')
  }
}

/** The same file whatever the path to it; of a file that is not there yet, by its folder. */
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
    todo: 'Say with --ranks on how many ranks experts are placed.',
  })
}

/** x.artifact.safetensors → x.placement.safetensors, anything.safetensors → anything.placement.safetensors */
export function placementPath(artifact: string): string {
  return `${artifact.replace(/(\.artifact)?\.safetensors$/, '')}.placement.safetensors`
}

/** x.calibration.safetensors → x.evaluation.safetensors, anything.safetensors → anything.evaluation.safetensors */
export function evaluationPath(calibration: string): string {
  return `${calibration.replace(/(\.calibration)?\.safetensors$/, '')}.evaluation.safetensors`
}
