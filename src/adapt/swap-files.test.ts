import { createHash } from 'node:crypto'
import { readFile, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { fitFile, shipped } from '../../test/data.ts'
import { temporaryFolder } from '../../test/trace-support.ts'
import type { Artifact } from '../fit/artifact.ts'
import { readArtifact } from '../fit/artifact-read.ts'
import { writeArtifact } from '../fit/artifact-write.ts'
import { SwapFiles } from './swap-files.ts'

const folder = temporaryFolder()
afterAll(() => folder.remove())

const { artifact } = await fitFile(shipped('tiny6-prompts.calibration'), { workers: 2 })
const swapped = (atMs: number, parentSha256: string): Artifact => ({
  ...artifact,
  about: {
    ...artifact.about,
    lineage: {
      parentSha256,
      atMs,
      sampleRequests: 200,
      heldOutRequests: 180,
      gain: 0.04,
      gainHalf: 0.01,
      judgedBy: 'predicted',
    },
  },
})
const hashOf = async (path: string) =>
  createHash('sha256')
    .update(await readFile(path))
    .digest('hex')

describe('the files of swaps', () => {
  it('keep the lineage, and are found again, newest first, up to a limit', async () => {
    const files = new SwapFiles(join(folder.path, 'swaps'), 2)
    expect(await files.list()).toEqual([])
    const original = join(folder.path, 'original.safetensors')
    await writeArtifact(original, artifact)
    let sha256 = await hashOf(original)
    let file = original
    for (const minute of [1, 2, 3]) {
      const copy = await files.saveParent(artifact, file, sha256)
      expect(await hashOf(copy)).toBe(sha256) // the same bytes
      file = await files.saveSwap(swapped(60_000 * minute, sha256))
      sha256 = await hashOf(file)
    }
    await writeFile(join(folder.path, 'swaps', 'notes.txt'), 'of an operator')
    await files.prune()
    const listed = await files.list()
    expect(listed.map(({ lineage }) => lineage.atMs)).toEqual([180_000, 120_000])
    expect(listed[0]).toMatchObject({ path: file, sha256 })
    expect(listed[0]!.lineage.parentSha256).toBe(listed[1]!.sha256)
    expect((await readArtifact(file)).about.lineage).toEqual(listed[0]!.lineage)
    // Both swaps that are left, the parents of both, and what is not ours.
    expect((await readdir(join(folder.path, 'swaps'))).length).toBe(5)
  })

  it('write the parent from memory if its file has changed', async () => {
    const files = new SwapFiles(join(folder.path, 'changed'), 2)
    const path = await files.saveParent(artifact, join(folder.path, 'gone'), 'b'.repeat(64))
    expect((await readArtifact(path)).about.workers).toBe(2)
  })
})
