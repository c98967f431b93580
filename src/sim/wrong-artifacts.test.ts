import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { fit } from '../fit/fit.ts'
import { createStages } from '../fit/stages.ts'
import { createSigner } from '../signature/signer.ts'
import { withTrace } from '../trace/trace.ts'
import { WRONG_ARTIFACTS } from './wrong-artifacts.ts'

const path = fileURLToPath(new URL('../../data/lab16-task.calibration.safetensors', import.meta.url))

describe('artifacts that do not fit', async () => {
  const { artifact, counts, cells } = await withTrace(path, async trace => ({
    artifact: (
      await fit(
        trace,
        {
          workers: 4,
          transform: 'count-idf',
          layers: [0, 5],
          balance: 'exact',
          restarts: 1,
          pairs: 1_000,
          seed: 0,
          batch: 32,
        },
        createStages(),
      )
    ).artifact,
    counts: await trace.prefillCounts(),
    cells: trace.layers * trace.experts,
  }))
  const dot = (a: ArrayLike<number>, b: ArrayLike<number>, at = 0) =>
    Array.from(a).reduce((sum, value, d) => sum + value * b[at + d]!, 0)

  const same = (a: ArrayBufferView, b: ArrayBufferView) =>
    Buffer.from(a.buffer, a.byteOffset, a.byteLength).equals(
      Buffer.from(b.buffer, b.byteOffset, b.byteLength),
    )

  it('with shuffled experts have the same clusters, which requests no longer match', () => {
    const wrong = WRONG_ARTIFACTS.shuffled(artifact, 1)
    expect(same(wrong.primary.centroids.toSorted(), artifact.primary.centroids.toSorted())).toBe(true)
    expect(same(wrong.calibration.patterns!.toSorted(), artifact.calibration.patterns!.toSorted())).toBe(true)
    const best = (of: typeof artifact) => {
      const signature = createSigner(of.primary.model).sign(counts.subarray(0, cells))!
      return Math.max(...[0, 1, 2, 3].map(k => dot(signature, of.primary.centroids, k * signature.length)))
    }
    expect(best(wrong)).toBeLessThan(best(artifact) / 2)
  })

  it('with random centroids, or with everything random, have unit vectors and the same shapes', () => {
    for (const kind of ['centroids', 'random'] as const) {
      const { primary, calibration } = WRONG_ARTIFACTS[kind](artifact, 1)
      const width = primary.centroids.length / 4
      const first = primary.centroids.subarray(0, width)
      expect(dot(first, first)).toBeCloseTo(1, 5)
      expect(same(primary.centroids, artifact.primary.centroids)).toBe(false)
      expect(primary.signatures.length).toBe(artifact.primary.signatures.length)
      expect(calibration.patterns!.length).toBe(artifact.calibration.patterns!.length)
      expect(same(primary.signatures, artifact.primary.signatures)).toBe(kind === 'centroids')
    }
    const [once, again] = [1, 1].map(seed => WRONG_ARTIFACTS.random(artifact, seed).calibration.patterns!)
    expect(same(once!, again!)).toBe(true)
  })
})
