import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { stepParts } from '../cost/profile.ts'
import { loadProfile } from '../cost/profile-file.ts'
import { fit } from '../fit/fit.ts'
import { createStages } from '../fit/stages.ts'
import { createRandom } from '../math/random.ts'
import { createDecodePolicy } from '../policy/create-policy.ts'
import { createSigner } from '../signature/signer.ts'
import { withTrace } from '../trace/trace.ts'
import { loadReplay } from './replay.ts'
import { simulate } from './simulate.ts'
import { parseTopology } from './topology.ts'

const file = (part: string) =>
  fileURLToPath(new URL(`../../data/lab16-task.${part}.safetensors`, import.meta.url))
const [workers, requests] = [8, 2_000]

describe('requests of one domain with long prompts, on decode workers with little KV cache', async () => {
  const profile = await loadProfile('h200-qwen3-30b-a3b')
  const { artifact } = await withTrace(file('calibration'), trace =>
    fit(
      trace,
      {
        workers,
        transform: 'count-idf',
        layers: 'all',
        balance: 'exact',
        restarts: 1,
        pairs: 1_000,
        seed: 0,
        batch: 32,
      },
      createStages(),
    ),
  )
  const { replay, counts, domain, cells } = await withTrace(file('evaluation'), async trace => ({
    replay: await loadReplay(trace),
    counts: await trace.prefillCounts(),
    domain: (await trace.domain())!,
    cells: trace.layers * trace.experts,
  }))
  const signer = createSigner(artifact.primary.model)
  const source = createRandom(9)
  const rows = Int32Array.from({ length: requests }, () => source.below(replay.rows))
  const lengths = {
    source: 'test',
    timesUs: new Float64Array(requests),
    promptTokens: rows.map(row => (domain[replay.requestOf[row]!] === 0 ? 800 : 100)),
    outputTokens: rows.map(() => 120),
  }
  const run = (policy: 'jsq' | 'band' | 'eldr' | 'union') =>
    simulate({
      workload: { arrivals: { kind: 'poisson', perSecond: 60 }, rows, lengths },
      requests,
      seed: 1,
      replay,
      profile,
      topology: parseTopology(`${workers}D`),
      decodePolicy: createDecodePolicy(policy, { workers, artifact, cost: stepParts(profile) })!,
      featuresOf: request => {
        const own = counts.subarray(request * cells, (request + 1) * cells)
        return { counts: own, signature: signer.sign(own) }
      },
      limits: { kvTokens: 6_400 },
    }).result

  it('are preempted and wait under band, which counts requests alone, and not under eldr and union', () => {
    const balanced = run('jsq')
    const alone = run('band')
    expect(alone.preemptions).toBeGreaterThan(4 * balanced.preemptions)
    expect(alone.latencyMs.p99).toBeGreaterThan(4 * balanced.latencyMs.p99)
    for (const guarded of [run('eldr'), run('union')]) {
      expect(guarded.preemptions).toBeLessThanOrEqual(balanced.preemptions)
      expect(guarded.latencyMs.p99).toBeLessThan(1.03 * balanced.latencyMs.p99)
    }
  })
})
