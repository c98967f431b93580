import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { DEFAULTS, fitFile, shipped } from '../../test/data.ts'
import { failure, temporaryFolder, traceWith } from '../../test/trace-support.ts'
import { packUnit } from '../math/packed-rows.ts'
import { dimensionsOf, writeSignature } from '../signature/signature.ts'
import { writeSafetensors } from '../trace/safetensors-write.ts'
import { readArtifact } from './artifact-read.ts'
import { writeArtifact } from './artifact-write.ts'
import type { Fitted } from './fit.ts'
import { placementOf } from './placement-of.ts'
import { refit } from './refit.ts'

const folder = temporaryFolder()
afterAll(() => folder.remove())
const file = (name: string) => join(folder.path, name)

async function traceFile(name: string, changes: Parameters<typeof traceWith>[0] = {}): Promise<string> {
  await writeSafetensors(file(name), traceWith(changes))
  return file(name)
}

describe('a fit of the shipped task trace', () => {
  let fitted: Fitted
  beforeAll(async () => {
    fitted = await fitFile(shipped('lab16-task.calibration'))
  })

  it('measures every transform, and gate scores on the requests that have them', () => {
    expect(fitted.qualities.map(({ name }) => name)).toEqual([
      'count',
      'count-idf',
      'sqrt',
      'binary',
      'gate-prob',
      'gate-logit',
    ])
    expect(fitted.qualities.map(({ requests }) => requests)).toEqual([500, 500, 500, 500, 160, 160])
    expect(fitted.qualities.at(-1)!.pairs).toBe((160 * 159) / 2)
  })

  it('chooses the better of the two best servable transforms at its peak', () => {
    expect(fitted.selections).toHaveLength(2)
    const [chosen, other] = fitted.selections
    expect(chosen!.rho).toBeGreaterThanOrEqual(other!.rho!)
    expect(chosen!.rho).toBe(Math.max(...chosen!.curve!.rho))
    expect(chosen!.layers).toEqual(
      chosen!.curve!.order.slice(0, chosen!.curve!.peak).toSorted((a, b) => a - b),
    )
  })

  it('makes clusters of at most ⌈N/K⌉ requests that separate domains', () => {
    const { sizes } = fitted.clusters
    expect(Math.max(...sizes)).toBeLessThanOrEqual(Math.ceil(500 / 16))
    expect(sizes.reduce((a, b) => a + b)).toBe(500)
    const { domain, clusterOf } = fitted.artifact.calibration
    const leading = sizes.map((_, k) => {
      const of = Array.from(domain!).filter((_, r) => clusterOf[r] === k)
      return Math.max(...[0, 1, 2, 3].map(d => of.filter(x => x === d).length))
    })
    // the largest of four domains has 30 %
    expect(leading.reduce((a, b) => a + b) / 500).toBeGreaterThan(0.85)
  })

  it('places a request by its signature: nearest centroid and cluster mostly agree', () => {
    const { primary, calibration } = fitted.artifact
    const { domain } = fitted.data
    const out = new Float32Array(dimensionsOf(primary.model))
    expect(writeSignature(primary.model, fitted.data.counts.subarray(0, 16 * 128), out)).toBe(true)
    expect(Array.from(packUnit(out))).toEqual(Array.from(primary.signatures.subarray(0, out.length)))
    expect(calibration.domain![0]).toBe(domain![0])
  })

  it('gives the same bytes for the same trace, options and seed, and different ones for another seed', async () => {
    await writeArtifact(file('a'), fitted.artifact)
    await writeArtifact(file('b'), (await fitFile(shipped('lab16-task.calibration'))).artifact)
    await writeArtifact(file('c'), (await fitFile(shipped('lab16-task.calibration'), { seed: 1 })).artifact)
    expect(readFileSync(file('a')).equals(readFileSync(file('b')))).toBe(true)
    expect(readFileSync(file('a')).equals(readFileSync(file('c')))).toBe(false)
  })

  it('reads back unchanged', async () => {
    await writeArtifact(file('a'), fitted.artifact)
    expect(await readArtifact(file('a'))).toEqual(fitted.artifact)
  })
})

describe('a refit', () => {
  it('with the same K and seed reproduces the artifact from the file alone', async () => {
    const { artifact } = await fitFile(shipped('tiny6-long-task.calibration'))
    await writeArtifact(file('a'), artifact)
    const old = await readArtifact(file('a'))
    expect(refit(old, DEFAULTS, file('a')).artifact).toEqual(artifact)
  })

  it('with the same K keeps the numbers of unchanged clusters', async () => {
    const rows = {
      dtype: 'U8',
      shape: [60, 1, 4],
      data: new Uint8Array(240).map((_, c) => [5, 1, 0, 2, 0, 4, 1, 1, 3, 3, 0, 2][c % 12]!),
    } as const
    await writeSafetensors(file('copies'), {
      metadata: { format: 'eldr.trace.v1', model: 'm', layers: '1', experts: '4', top_k: '1' },
      tensors: { prefill_counts: rows },
    })
    const { artifact, notes } = await fitFile(file('copies'), { workers: 9, transform: 'count' })
    expect(notes.join()).not.toContain('alike')
    expect(refit(artifact, { ...DEFAULTS, workers: 9 }, 'x').artifact).toEqual(artifact)
  })

  it('with another K keeps the region of the remaining workers', async () => {
    const { artifact: old } = await fitFile(shipped('lab16-task.calibration'))
    const width = dimensionsOf(old.primary.model)
    const dot = (a: Float32Array, b: Float32Array) => a.reduce((sum, x, d) => sum + x * b[d]!, 0)
    const row = (rows: Float32Array, k: number) => rows.subarray(k * width, (k + 1) * width)
    for (const workers of [12, 20]) {
      const { artifact } = refit(old, { ...DEFAULTS, workers }, 'x')
      expect(artifact.about.sizes).toHaveLength(workers)
      expect(artifact.primary.centroids).toHaveLength(workers * width)
      const stay = Math.min(workers, 16)
      const own = Array.from({ length: stay }, (_, k) =>
        dot(row(old.primary.centroids, k), row(artifact.primary.centroids, k)),
      )
      const any = Array.from({ length: stay }, (_, k) =>
        Math.max(
          ...Array.from({ length: workers }, (_, n) =>
            dot(row(old.primary.centroids, k), row(artifact.primary.centroids, n)),
          ),
        ),
      )
      // Matching optimises all workers together, so one may get its second best; on average they get nearly
      // the best.
      expect(own.reduce((a, b) => a + b) / stay).toBeGreaterThan(any.reduce((a, b) => a + b) / stay - 0.05)
    }
  })

  it('rejects more workers than calibration requests', async () => {
    const { artifact } = await fitFile(shipped('tiny6-long-task.calibration'), { workers: 4 })
    expect((await failure('x', () => refit(artifact, { ...DEFAULTS, workers: 601 }, 'x'))).code).toBe(
      'ELDR_TRACE_TOO_SMALL',
    )
  })
})

describe('a fit on recent counts', () => {
  it('is chosen if ρ says so, and includes a fit on plain counts with the same clusters', async () => {
    const { artifact } = await fitFile(shipped('tiny6-long-task.calibration'), { workers: 8 })
    expect(artifact.primary.model.transform).toBe('recent')
    expect(artifact.primary.recentHalfLife).toBe(64)
    expect(artifact.fallback!.model.transform).toBe('count')
    expect(artifact.fallback!.centroids).toHaveLength(8 * dimensionsOf(artifact.fallback!.model))
    await writeArtifact(file('a'), artifact)
    expect(await readArtifact(file('a'))).toEqual(artifact)
    const again = refit(await readArtifact(file('a')), { ...DEFAULTS, workers: 5 }, file('a')).artifact
    expect(again.fallback!.centroids).toHaveLength(5 * dimensionsOf(again.fallback!.model))
  })
})

describe('a fit of unusual traces', () => {
  const small = { workers: 2, pairs: 100 }

  it('without decode data uses the paper’s transform on all layers and says so', async () => {
    const path = await traceFile('no-decode', {
      tensors: {
        decode_counts: undefined,
        decode_steps: undefined,
        decode_expert_ids: undefined,
        prefill_recent: undefined,
      },
    })
    const { artifact, notes } = await fitFile(path, small)
    expect(artifact.primary.model.transform).toBe('count-idf')
    expect(Array.from(artifact.primary.model.layers)).toEqual([0, 1])
    expect(artifact.primary.rho).toBeUndefined()
    expect(notes.join()).toContain('no decode data')
    await writeArtifact(file('a'), artifact)
    expect(await readArtifact(file('a'))).toEqual(artifact)
    expect((await failure('x', () => placementOf(artifact, 2, 32, 'x'))).code).toBe('ELDR_TENSOR_MISSING')
  })

  it('drops requests without counts and says so', async () => {
    const counts = new Uint16Array([3, 3, 0, 0, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 1, 1, 0])
    const path = await traceFile('gap', {
      tensors: {
        prefill_counts: { dtype: 'U16', shape: [3, 2, 4], data: counts },
        decode_steps: undefined,
        decode_counts: undefined,
        decode_expert_ids: undefined,
      },
    })
    const { artifact, notes } = await fitFile(path, { ...small, transform: 'count' })
    expect(artifact.calibration.requests).toBe(2)
    expect(Array.from(artifact.calibration.domain!)).toEqual([0, 1])
    expect(notes.join()).toContain('1 of 3 requests have no signature')
  })

  it('with identical requests has no IDF signature, and says what to do', async () => {
    const same = { dtype: 'U16', shape: [3, 2, 4], data: new Uint16Array(24).fill(1) } as const
    const path = await traceFile('alike', {
      tensors: {
        prefill_counts: same,
        prompt_tokens: undefined,
        decode_steps: undefined,
        decode_counts: undefined,
        decode_expert_ids: undefined,
      },
    })
    const error = await failure('alike', () => fitFile(path, { ...small, transform: 'count-idf' }))
    expect(error.code).toBe('ELDR_FIT_NO_SIGNAL')
    expect(error.message).toContain('prompts that use different experts')
  })

  it('with too few measurable requests for ρ works without it, and says so', async () => {
    // one of three requests decoded nothing
    const { artifact, notes } = await fitFile(await traceFile('few'), small)
    expect(artifact.primary.rho).toBeUndefined()
    expect(notes.join()).toContain('Too few requests have both counts and decode steps')
  })

  it('on recent counts that could not be measured has a fallback too', async () => {
    const { artifact } = await fitFile(await traceFile('few'), { ...small, transform: 'recent' })
    expect(artifact.fallback!.model.transform).toBe('count')
    await writeArtifact(file('a'), artifact)
    expect(await readArtifact(file('a'))).toEqual(artifact)
  })

  it('whose recent counts are all zero uses plain counts', async () => {
    const zeros = { dtype: 'F32', shape: [3, 2, 4], data: new Float32Array(24) } as const
    const steps = { dtype: 'U16', shape: [3], data: new Uint16Array([2, 1, 1]) } as const
    const path = await traceFile('zeros', {
      tensors: { prefill_recent: zeros, decode_steps: steps, decode_expert_ids: undefined },
    })
    expect((await fitFile(path, small)).qualities.map(({ name }) => name)).not.toContain('recent')
  })

  it('without distinct requests says that routing will hardly help', async () => {
    const same = { dtype: 'U16', shape: [3, 2, 4], data: new Uint16Array(24).fill(1) } as const
    const steps = { dtype: 'U16', shape: [3], data: new Uint16Array([2, 1, 1]) } as const
    const path = await traceFile('same', {
      tensors: {
        prefill_counts: same,
        prompt_tokens: undefined,
        prefill_recent: undefined,
        decode_steps: steps,
        decode_expert_ids: undefined,
      },
    })
    const { notes, artifact } = await fitFile(path, { ...small, transform: 'count' })
    expect(notes.join()).toMatch(/ρ is 0.000.*All clusters are alike/)
    expect(artifact.about.meanSimilarity).toBeCloseTo(1, 9)
    expect(artifact.about.meanSimilarity).toBeLessThanOrEqual(1)
  })

  it('accepts one gate tensor without the other', async () => {
    const path = await traceFile('one-gate', { tensors: { gate_logit_mean: undefined } })
    expect(
      (await fitFile(path, { ...small, transform: 'gate-prob', layers: 'all' })).artifact.primary.model
        .transform,
    ).toBe('gate-prob')
  })

  it('rejects work that would take gigabytes before allocating them', async () => {
    const path = await traceFile('good')
    const huge = {
      dtype: 'U8',
      shape: [60_000, 1, 2],
      data: new Uint8Array(120_000).map((_, c) => 1 + (c % 3)),
    } as const
    await writeSafetensors(file('long'), {
      metadata: { format: 'eldr.trace.v1', model: 'm', layers: '1', experts: '2', top_k: '1' },
      tensors: { prefill_counts: huge },
    })
    expect((await failure('long', () => fitFile(file('long'), { ...small, workers: 20_000 }))).code).toBe(
      'ELDR_FIT_TOO_LARGE',
    )
    // all three pairs
    expect((await fitFile(path, { ...small, pairs: 2 ** 32 })).artifact.about.workers).toBe(2)
  })

  it('clusters groups of equal requests as fast as others', async () => {
    const crowd = {
      dtype: 'U8',
      shape: [20_000, 1, 4],
      data: new Uint8Array(80_000).map((_, c) => [5, 1, 0, 2, 0, 4, 1, 1, 3, 3, 0, 2][c % 12]!),
    } as const
    await writeSafetensors(file('crowd'), {
      metadata: { format: 'eldr.trace.v1', model: 'm', layers: '1', experts: '4', top_k: '1' },
      tensors: { prefill_counts: crowd },
    })
    const from = process.cpuUsage()
    const { clusters } = await fitFile(file('crowd'), { ...small, workers: 16, transform: 'count' })
    expect(Math.max(...clusters.sizes)).toBe(1250)
    // About 2 s of CPU time; one step for each of thousands of equal points took minutes.
    expect(process.cpuUsage(from).user / 1e6).toBeLessThan(20)
  })

  it.each([
    ['more workers than requests', { workers: 4 }, 'ELDR_TRACE_TOO_SMALL'],
    ['a layer that is not there', { layers: [0, 2] }, 'ELDR_FIT_BAD_OPTION'],
    ['ranks that do not divide the experts', { ranks: 3 }, 'ELDR_FIT_BAD_OPTION'],
    [
      'a gate transform for more workers than have scores',
      { workers: 3, transform: 'gate-prob' },
      'ELDR_TRACE_TOO_SMALL',
    ],
  ] as const)('rejects %s', async (_, options, code) => {
    const path = await traceFile('good')
    expect((await failure('good', () => fitFile(path, { ...small, ...options }))).code).toBe(code)
  })

  it('rejects a transform whose values are missing, naming the tensor', async () => {
    const path = await traceFile('bare', {
      tensors: { prefill_recent: undefined, gate_prob_sum: undefined, gate_logit_mean: undefined },
    })
    for (const transform of ['recent', 'gate-prob'] as const) {
      const error = await failure('bare', () => fitFile(path, { ...small, transform }))
      expect(error.code).toBe('ELDR_TENSOR_MISSING')
      expect(error.message).toContain(transform === 'recent' ? 'prefill_recent' : 'gate_prob_sum')
    }
  })

  it('on gate scores is for study, and says that no gateway can use it', async () => {
    const { artifact, notes } = await fitFile(shipped('lab16-lang.calibration'), {
      transform: 'gate-prob',
      layers: 'all',
      workers: 4,
    })
    expect(artifact.calibration.requests).toBe(160)
    expect(notes.join(' ')).toMatch(/340 of 500 requests have no gate scores.*for study/)
  })

  it('accepts a list of layers, and plain K-means on request', async () => {
    const { artifact, clusters } = await fitFile(shipped('lab16-task.calibration'), {
      layers: [3, 12, 13],
      transform: 'count',
      balance: 'none',
    })
    expect(Array.from(artifact.primary.model.layers)).toEqual([3, 12, 13])
    expect(artifact.primary.curve).toBeUndefined()
    expect(Math.max(...clusters.sizes)).toBeGreaterThan(Math.ceil(500 / 16))
  })

  it('of an evaluation trace counts decode patterns from the expert ids', async () => {
    const { artifact, qualities } = await fitFile(shipped('tiny6-long-lang.evaluation'), {
      workers: 4,
      layers: 'all',
    })
    expect(artifact.calibration.patterns).toBeDefined()
    expect(qualities.find(({ name }) => name === 'count')!.rho).toBeGreaterThan(0.7)
  })
})
