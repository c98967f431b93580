import { constants } from 'node:fs'
import { access, realpath, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import { EldrError } from '../errors.ts'

/** Finds out before minutes of work, not after: each output's folder is there and can be written, and no output is an input or another output. */
export async function checkOutputs(inputs: readonly string[], outputs: readonly (string | undefined)[]): Promise<void> {
  const taken = new Map<string, string>()
  for (const input of inputs) taken.set(await canonical(input), 'the input')
  for (const file of outputs) {
    if (file === undefined) continue
    const there = await stat(file).catch(() => undefined)
    if (there && !there.isFile())
      throw new EldrError('ELDR_FILE_UNWRITABLE', { file, found: 'something else than a regular file in its place' })
    const folder = dirname(file)
    await access(folder, constants.W_OK).catch((cause: unknown) => {
      throw new EldrError('ELDR_FILE_UNWRITABLE', { file, found: `no folder ${folder} that can be written to`, cause })
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
    async () => `${await realpath(dirname(path)).catch(() => dirname(path))}/${path.slice(path.lastIndexOf('/') + 1)}`,
  )
}

/** x.artifact.safetensors → x.placement.safetensors, anything.safetensors → anything.placement.safetensors */
export function placementPath(artifact: string): string {
  return `${artifact.replace(/(\.artifact)?\.safetensors$/, '')}.placement.safetensors`
}
