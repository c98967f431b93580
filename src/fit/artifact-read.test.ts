import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { fitFile, shipped } from '../../test/data.ts'
import { failure, temporaryFolder } from '../../test/trace-support.ts'
import { EldrError } from '../errors.ts'
import { createRandom } from '../math/random.ts'
import { withSafetensors } from '../trace/safetensors-file.ts'
import { type TensorToWrite, writeSafetensors } from '../trace/safetensors-write.ts'
import { readArtifact } from './artifact-read.ts'
import { writeArtifact } from './artifact-write.ts'

const folder = temporaryFolder()
afterAll(() => folder.remove())
const good = join(folder.path, 'good')
const bad = join(folder.path, 'bad')

beforeAll(async () => {
  const { artifact } = await fitFile(shipped('tiny6-long-task.calibration'), {
    workers: 3,
    layers: [2, 3],
    restarts: 1,
    pairs: 2000,
  })
  await writeArtifact(good, artifact)
})

/** The valid artifact with some metadata and tensors changed; undefined removes one. */
async function spoiled(
  metadata: Record<string, string | undefined>,
  change: (tensors: Record<string, TensorToWrite>) => void = () => undefined,
): Promise<void> {
  await withSafetensors(good, async file => {
    const tensors: Record<string, TensorToWrite> = {}
    for (const [name, { dtype, shape }] of file.tensors)
      tensors[name] = { dtype, shape, data: (await file.read(name)) as Uint8Array }
    change(tensors)
    const merged = Object.entries({ ...file.metadata, ...metadata }).filter(
      (entry): entry is [string, string] => entry[1] !== undefined,
    )
    await writeSafetensors(bad, { metadata: Object.fromEntries(merged), tensors })
  })
}

describe('an artifact file', () => {
  it.each([
    ['format', 'eldr.artifact.v9', 'ELDR_FILE_UNKNOWN_VERSION'],
    ['format', 'eldr.trace.v1', 'ELDR_FILE_WRONG_KIND'],
    ['format', undefined, 'ELDR_FILE_WRONG_KIND'],
    ['model', undefined, 'ELDR_FILE_BAD_METADATA'],
    ['workers', '-1', 'ELDR_FILE_BAD_METADATA'],
    ['workers', '4', 'ELDR_FILE_BAD_METADATA'],
    ['experts', '1e99', 'ELDR_FILE_BAD_METADATA'],
    ['experts', '32', 'ELDR_TENSOR_BAD_SHAPE'],
    ['layers', '99999999', 'ELDR_FILE_BAD_METADATA'],
    ['transform', 'guess', 'ELDR_FILE_BAD_METADATA'],
    ['balance', 'some', 'ELDR_FILE_BAD_METADATA'],
    ['sizes', '[1,2', 'ELDR_FILE_BAD_METADATA'],
    ['sizes', '[1000000000,1,1]', 'ELDR_FILE_BAD_METADATA'],
    ['sizes', '[-1,0.5,601]', 'ELDR_FILE_BAD_METADATA'],
    ['reads', 'gate', 'ELDR_FILE_BAD_METADATA'],
    ['restarts', '1000000', 'ELDR_FILE_BAD_METADATA'],
    ['rho_curve', '{"order":[999],"rho":[0.5],"peak":1}', 'ELDR_FILE_BAD_METADATA'],
    ['best_similarity', '[]', 'ELDR_FILE_BAD_METADATA'],
    ['best_similarity', '[[0.5,1],[0.1,1]]', 'ELDR_FILE_BAD_METADATA'],
    ['cluster_similarity', '[2,0,0]', 'ELDR_FILE_BAD_METADATA'],
    ['transforms', '[]', 'ELDR_FILE_BAD_METADATA'],
    ['best_similarity', '[[1]]', 'ELDR_FILE_BAD_METADATA'],
    ['cluster_similarity', 'null', 'ELDR_FILE_BAD_METADATA'],
    ['rho', 'NaN', 'ELDR_FILE_BAD_METADATA'],
    ['seed', '1.5', 'ELDR_FILE_BAD_METADATA'],
  ])('whose %s is %s is rejected with a message that names the file', async (key, value, code) => {
    await spoiled({ [key]: value })
    expect((await failure(bad, () => readArtifact(bad))).code).toBe(code)
  })

  it.each<[string, (tensors: Record<string, TensorToWrite>) => void, string]>([
    ['no centroids', tensors => void delete tensors['centroids'], 'ELDR_TENSOR_MISSING'],
    [
      'a centroid of NaN',
      tensors => void (tensors['centroids']!.data as Float32Array).fill(NaN, 0, 1),
      'ELDR_TENSOR_BAD_VALUE',
    ],
    [
      'a centroid twice as long',
      tensors => (tensors['centroids']!.data as Float32Array).forEach((x, at, all) => (all[at] = 2 * x)),
      'ELDR_TENSOR_BAD_VALUE',
    ],
    [
      'a negative weight',
      tensors => void (tensors['weights']!.data as Float32Array).fill(-1, 0, 1),
      'ELDR_TENSOR_BAD_VALUE',
    ],
    [
      'a signature too long for its products',
      tensors => void (tensors['calibration_signatures']!.data as Int16Array).fill(32_767, 0, 9),
      'ELDR_TENSOR_BAD_VALUE',
    ],
    [
      'a signature of zeros',
      tensors => void (tensors['calibration_signatures']!.data as Int16Array).fill(0, 0, 128),
      'ELDR_TENSOR_BAD_VALUE',
    ],
    [
      'a cluster beyond the last',
      tensors => void (tensors['calibration_cluster']!.data as Uint16Array).fill(3, 0, 1),
      'ELDR_TENSOR_BAD_VALUE',
    ],
    [
      'a domain beyond the last',
      tensors => void (tensors['calibration_domain']!.data as Uint8Array).fill(4, 0, 1),
      'ELDR_TENSOR_BAD_VALUE',
    ],
    [
      'a mask of 77',
      tensors => void (tensors['layer_mask']!.data as Uint8Array).fill(77, 0, 1),
      'ELDR_TENSOR_BAD_VALUE',
    ],
    [
      'zeros for centroids',
      tensors => void (tensors['centroids']!.data as Float32Array).fill(0),
      'ELDR_TENSOR_BAD_VALUE',
    ],
    [
      'no layer kept',
      tensors => void (tensors['layer_mask']!.data as Uint8Array).fill(0),
      'ELDR_TENSOR_BAD_VALUE',
    ],
    [
      'one layer more',
      tensors => void (tensors['layer_mask']!.data as Uint8Array).fill(1, 0, 1),
      'ELDR_TENSOR_BAD_SHAPE',
    ],
    [
      'weights of another type',
      tensors =>
        (tensors['weights'] = { dtype: 'I32', shape: tensors['weights']!.shape, data: new Int32Array(128) }),
      'ELDR_TENSOR_BAD_TYPE',
    ],
  ])('with %s is rejected', async (_, change, code) => {
    await spoiled({}, change)
    expect((await failure(bad, () => readArtifact(bad))).code).toBe(code)
  })

  it('that is changed at random is either read or rejected with an ELDR error', async () => {
    const bytes = readFileSync(good)
    const random = createRandom(11)
    const outcomes = new Set<string>()
    for (let run = 0; run < 600; run++) {
      const changed = Buffer.from(
        bytes.subarray(0, random.uniform() < 0.2 ? random.below(bytes.length) : bytes.length),
      )
      // Most changes go into the header, where more can break.
      for (let n = 1 + random.below(4); n > 0 && changed.length > 0; n--)
        changed[random.below(Math.min(changed.length, random.uniform() < 0.8 ? 2500 : changed.length))] =
          random.below(256)
      writeFileSync(bad, changed)
      outcomes.add(
        await readArtifact(bad).then(
          () => 'read',
          (error: unknown) => (error instanceof EldrError ? error.code : `not ours: ${String(error)}`),
        ),
      )
    }
    expect([...outcomes].filter(outcome => outcome.startsWith('not ours'))).toEqual([])
    expect(outcomes.size).toBeGreaterThan(4)
  })
})
