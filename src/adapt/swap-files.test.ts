import { createHash } from 'node:crypto'
import { readFile, readdir, rm, writeFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { fitFile, shipped } from '../../test/data.ts'
import { temporaryFolder } from '../../test/trace-support.ts'
import type { Artifact } from '../fit/artifact.ts'
import { readArtifact } from '../fit/artifact-read.ts'
import { writeArtifact } from '../fit/artifact-write.ts'
import { writeSafetensors } from '../trace/safetensors-write.ts'
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
    expect(await files.list()).toEqual({ swaps: [], skipped: [] })
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
    const { swaps: listed } = await files.list()
    expect(listed.map(({ lineage }) => lineage.atMs)).toEqual([180_000, 120_000])
    expect(listed[0]).toMatchObject({ path: file, sha256 })
    expect(listed[0]!.lineage.parentSha256).toBe(listed[1]!.sha256)
    expect((await readArtifact(file)).about.lineage).toEqual(listed[0]!.lineage)
    // Both swaps that are left, the parents of both, and what is not ours.
    expect((await readdir(join(folder.path, 'swaps'))).length).toBe(5)
  })

  it('write the parent from memory if its file is gone, with the same bytes', async () => {
    const files = new SwapFiles(join(folder.path, 'changed'), 2)
    const original = join(folder.path, 'gone.safetensors')
    await writeArtifact(original, artifact)
    const [sha256, read] = [await hashOf(original), await readArtifact(original)]
    await rm(original)
    expect(await files.findParent(sha256)).toBeUndefined()
    const path = await files.saveParent(read, original, sha256)
    expect(await hashOf(path)).toBe(sha256)
    expect(await files.findParent(sha256)).toBe(path)
  })

  it('keep what became of a swap, and leave nothing of one that was not put in force', async () => {
    const own = join(folder.path, 'outcomes')
    const files = new SwapFiles(own, 1)
    const parent = 'a'.repeat(64)
    await files.saveParent(artifact, 'gone', parent)
    const path = await files.saveSwap(swapped(60_000, parent))
    const outcome = { state: 'rolled_back', heldUntilMs: 90_000, p99BeforeMs: 20, p99AfterMs: 31 } as const
    await files.saveOutcome(path, outcome)
    await files.saveOutcome('/elsewhere/swap-20200101T000000Z-aaaaaaaa.artifact.safetensors', outcome)
    expect((await files.list()).swaps[0]!.outcome).toEqual({ ...outcome, moved: undefined })
    for (const text of ['{', 'null', '{"state":"lost"}', '{"state":"past","moved":"x"}']) {
      await writeFile(path.replace('.artifact.safetensors', '.outcome.json'), text)
      expect((await files.list()).swaps[0]!.outcome).toBeUndefined()
    }
    expect((await readdir(own)).length).toBe(3)
    await files.discard(path)
    expect(await readdir(own)).toEqual([])
  })

  it('are skipped if they are damaged, with the reason', async () => {
    const own = join(folder.path, 'damaged')
    const files = new SwapFiles(own, 2)
    const good = await files.saveSwap(swapped(60_000, 'a'.repeat(64)))
    const bad = {
      null: 'swap-20200101T000000Z-aaaaaaaa.artifact.safetensors',
      text: 'swap-20200102T000000Z-aaaaaaaa.artifact.safetensors',
    }
    await writeSafetensors(join(own, bad.null), { metadata: { lineage: 'null' }, tensors: {} })
    await writeFile(join(own, bad.text), 'no tensors')
    const { swaps, skipped } = await files.list()
    expect(swaps.map(({ path }) => path)).toEqual([good])
    expect(skipped.map(({ file }) => basename(file)).sort()).toEqual([bad.null, bad.text])
    expect(skipped.find(({ file }) => file.endsWith(bad.null))!.problem).toContain('lineage')
    await files.prune()
    expect((await readdir(own)).length).toBe(3)
  })

  it('need a folder that can be written, or created', async () => {
    const file = join(folder.path, 'a-file')
    await writeFile(file, '')
    const inFile = new SwapFiles(join(file, 'swaps'), 2)
    await expect(inFile.checkWritable()).rejects.toMatchObject({ code: 'ELDR_ADAPT_FOLDER' })
    await expect(inFile.saveSwap(swapped(1, 'a'.repeat(64)))).rejects.toThrow('ELDR_ADAPT_FOLDER')
    await new SwapFiles(join(folder.path, 'not', 'yet'), 2).checkWritable()
    expect(await readdir(folder.path)).not.toContain('not')
  })
})
