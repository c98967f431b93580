/** docs/evidence/gpu.md: the committed page, and what synthetic results make of it. */
import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, describe, expect, it } from 'vitest'
import { loadProfile } from '../src/cost/profile-file.ts'
import { type GpuEvidence, gpuPage } from '../src/served/gpu-page.ts'
import { parsePrediction, predictedRuns } from '../src/served/prediction.ts'
import { readEvidence } from '../src/served/read-evidence.ts'
import { signed } from '../src/served/capture-numbers.ts'
import { changeOf, meanOf, policiesOf } from '../src/served/paired.ts'
import { completeRuns, parseServedResult } from '../src/served/result-file.ts'
import { fixed } from '../src/report/numbers.ts'
import { resultText } from '../src/report/result-text.ts'
import { profileText, servedProfile } from '../src/served/served-profile.ts'
import { STEP_FIGURE, stepFigure } from '../src/served/step-section.ts'
import { temporaryFolder } from './trace-support.ts'
import {
  CONDITIONS,
  envelope,
  MODEL,
  predictionOf,
  quantilesAt,
  runOf,
  servedResult,
  stepsOf,
} from './served-support.ts'

const root = new URL('../', import.meta.url)
const results = new URL('bench/gpu/serving/results/', root)
const docs = (name: string) => readFileSync(new URL(`docs/${name}`, root), 'utf8')
const evidence = await readEvidence(results)

describe('docs/evidence/gpu.md', () => {
  it('is generated from the committed results: run `npm run build && npm run docs` if not', () => {
    expect(docs('evidence/gpu.md')).toBe(gpuPage(evidence))
  })

  it('has its figure exactly if steps were recorded', () => {
    const figure = stepFigure(evidence.results)
    const file = new URL(`docs/pictures/${STEP_FIGURE}`, root)
    expect(existsSync(file) ? readFileSync(file, 'utf8') : undefined).toBe(figure)
  })

  it('has the profiles of its results in profiles/: run `node scripts/served-profile.mjs RESULT` if not', () => {
    for (const { served } of evidence.shapes)
      expect(readFileSync(new URL(`profiles/${served.name}.json`, root), 'utf8')).toBe(profileText(served))
    const committed = readdirSync(new URL('profiles/', root)).filter(name => name.startsWith('h200-served-'))
    expect(committed.toSorted()).toEqual(
      evidence.shapes.map(({ served }) => `${served.name}.json`).toSorted(),
    )
  })

  it('has the figures of the table in README.md', () => {
    const served = evidence.results.filter(result => result.kind === 'served')
    const rows = served
      .toSorted((a, b) => b.served.decoders - a.served.decoders || a.served.rate - b.served.rate)
      .map(result => {
        const runs = completeRuns(result)
        const batches = policiesOf(runs).map(policy => meanOf(runs, policy, run => run.together.batch))
        const gain = (policy: string) =>
          (['p50', 'p99'] as const).flatMap(name => {
            const change = changeOf(runs, policy, run => run.tpotMs[name])
            return change === undefined ? [] : [signed(100 * change.mean, 1)]
          })
        const cells = ['band', 'eldr', 'union'].map(policy => gain(policy).join(' / '))
        const batch = `${fixed(Math.min(...batches), 1)}–${fixed(Math.max(...batches), 1)}`
        return `| ${[result.served.decoders, batch, ...cells].join(' | ')} |`.replaceAll('|  |', '| |')
      })
    expect(rows.length).toBeGreaterThan(5)
    expect(readFileSync(new URL('README.md', root), 'utf8')).toContain(
      ['|---:|---:|---:|---:|---:|', ...rows].join('\n'),
    )
  })

  it('has results without absolute paths', async () => {
    for (const name of existsSync(results) ? readdirSync(results) : [])
      expect(await resultText(new URL(name, results))).not.toMatch(/"\/(?!v1)[\w.-]+\/|[A-Z]:\\/)
  })
})

describe('scripts/served-profile.mjs', () => {
  const folder = temporaryFolder()
  afterAll(() => folder.remove())
  const script = fileURLToPath(new URL('scripts/served-profile.mjs', root))
  const run = (...args: string[]) =>
    execFileSync(process.execPath, [script, ...args], { encoding: 'utf8', stdio: 'pipe' })
  const steps = stepsOf((batch, experts) => Math.max(3_000, 500 + 5 * batch + 60 * experts), { noise: 0.02 })
  const save = (change: object = {}) => {
    const file = join(folder.path, 'profile-wide.json')
    writeFileSync(
      file,
      JSON.stringify({ ...envelope('profile', 'profile-wide', { profile: { steps } }), ...change }),
    )
    return file
  }

  it('writes a profile that simulations can load', async () => {
    const out = join(folder.path, 'served.json')
    expect(run(save(), '--base', 'h200-first', '--out', out)).toMatch(
      /^h200-served-wide: 3000 steps, error 0\.\d % median, .* bound by the host\n$/,
    )
    expect((await loadProfile(out)).decode.host).toMatchObject({ overlaps: true })
  })

  it('takes the result of a rehearsal only if asked to', () => {
    const dry = save({ status: 'dry' })
    const args = [dry, '--base', 'h200-first', '--out', join(folder.path, 'dry.json')]
    expect(() => run(...args)).toThrow('status')
    expect(run(...args, '--dry')).toContain('3000 steps')
    expect(() => run(dry, '--dry')).toThrow('--dry needs --out')
  })
})

/** A page of these results. */
function pageOf(values: readonly Record<string, unknown>[], more: Partial<GpuEvidence> = {}): string {
  const read = values.map(value => parseServedResult(`${String(value['name'])}.json`, value)!)
  return gpuPage({ results: read, predictions: new Map(), shapes: [], ...more })
}

const headings = (page: string) => [...page.matchAll(/^## (.*)$/gm)].map(([, title]) => title)
const prediction = (change: number) => ({
  prediction: parsePrediction('predicted.json', predictionOf(change)),
  sha256: 'abc',
})
const predicted = (change: number, sha256 = 'abc') =>
  pageOf([servedResult({ prediction: { file: 'predicted.json', sha256 } })], {
    predictions: new Map([['predicted.json', prediction(change)]]),
  })

describe('the page of results', () => {
  it('says that there are none', () => {
    const page = pageOf([])
    expect(headings(page)).toEqual(['Repeat it'])
    expect(page).toContain('No result with its full conditions is in the repository yet.')
  })

  it('leaves out what was not measured', () => {
    expect(headings(pageOf([servedResult()]))).toEqual([
      'Conditions',
      'The widened model',
      'TPOT by policy, GPU-served',
      'Repeat it',
    ])
  })

  it('has changes against jsq with their intervals, and the counts behind them', () => {
    const page = pageOf([servedResult()])
    // Changes of −11, −10 and −9 %: mean −10, interval 4.303 · 1/√3.
    expect(page).toMatch(/\| eldr \| 12\.61 \| −10\.0\s±\s2\.5\s% \|/)
    expect(page).toContain('**eldr −10.0')
    expect(page).toContain('3 rounds, 1,800 counted requests, none failed')
    expect(page).toContain('| −9.5\u00a0% |') // experts at equal batch: 38 beside 42
    expect(page).not.toContain('fell behind')
  })

  it('names runs that failed and clients that fell behind', () => {
    const runs = [
      { ...runOf('jsq', 0, 13, 42), client: { keptUp: false } },
      { policy: 'eldr', round: 0, failed: 'gateway not ready' },
    ]
    const page = pageOf([servedResult({ runs })])
    expect(page).toContain('1 run failed and is left out.')
    expect(page).toContain('The load client fell behind in 1 of 1 run.')
  })

  it('compares served changes with predicted ones, in points', () => {
    const page = predicted(-0.12)
    expect(page).toContain('**2 of 2 changes of TPOT are within 3 points of the served ones**')
    expect(page).toMatch(/\| eldr \| TPOT p50 \| −10\.0\s±\s2\.5\s% \| −12\.0\s±\s0\.0\s% \| −2\.0 \|/)
    expect(predicted(-0.2)).toContain('**0 of 2 changes of TPOT are within 3 points')
  })

  it('keeps the prediction beside what was simulated afterwards', () => {
    const page = pageOf([servedResult({ prediction: { file: 'predicted.json', sha256: 'abc' } })], {
      predictions: new Map([
        ['predicted.json', prediction(-0.2)],
        ['simulated-served-k4-b10.json', prediction(-0.11)],
      ]),
    })
    expect(page).toMatch(/\*\*Predicted before the runs\.\*\* \*\*0 of 2 changes of TPOT are within 3 points/)
    expect(page).toMatch(/\*\*Simulated afterwards, .*\*\*2 of 2 changes of TPOT are within 3 points/)
    expect(page).toMatch(/\| −20\.0\s±\s0\.0\s% \| −10\.0 \| −11\.0\s±\s0\.0\s% \| −1\.0 \|/)
    expect(predicted(-0.12)).not.toContain('afterwards')
  })

  it('shows where the time of capture goes', () => {
    const timers = (sumsUs: number, steps: number) => ({
      promptTokens: 128 * steps,
      functions: {
        'EldrConnector.build_connector_meta': { usPerRequest: 3 * steps, callsPerRequest: steps },
        'EldrConnector.build_connector_worker_meta': { usPerRequest: sumsUs },
        'EldrConnector.get_kv_connector_stats': { usPerRequest: 4 * steps, callsPerRequest: 2 * steps },
      },
    })
    const cost = { cells: [], timers: [timers(161, 8), timers(161, 300)] }
    const page = pageOf([
      envelope('capture-profile', 'capture-profile', { captureProfile: { timers: [timers(487.4, 8)] } }),
      envelope('capture-cost', 'capture-cost', { captureCost: cost }),
    ])
    expect(page).toContain(
      '| worker, every step: after the forward pass, launch the sums | 487 | 161 | 161 |',
    )
    expect(page).toContain('| worker, every step: before the forward pass | · | · | · |')
    expect(page).toContain('| both, every step: asked for metrics | 32 | 32 | 1,200 |')
    expect(page).toContain('| total | 543 | 217 | 2,261 |')
    expect(page).toContain('| steps per request | 8 | 8 | 300 |')
    expect(page).toContain('One such step costs the plugin about 7 µs.')
  })

  it('says at what pace the engines ran where a prediction missed', () => {
    expect(predicted(-0.2)).not.toContain('fullest engine')
    const steps = { ms: [8, 9], batch: [25, 38], experts: [57, 59], worker: [0, 1] }
    const { served, ...result } = servedResult({ prediction: { file: 'predicted.json', sha256: 'abc' } })
    const { runs, ...rest } = served as { runs: object[] }
    const page = pageOf([{ ...result, served: { ...rest, runs: runs.map(run => ({ ...run, steps })) } }], {
      predictions: new Map([['predicted.json', prediction(-0.2)]]),
    })
    expect(page).toContain('the fullest engine had batch 38, 9.00 ms at the median')
    expect(page).toContain('the emptiest batch 25, 8.00 ms at the median')
  })

  it('connects gains that are predicted too small with steps that are predicted too long', () => {
    const page = predicted(-0.07)
    expect(page).toMatch(/every gain at the median is predicted too small, by 3\.0 to 3\.0 points/)
    expect(page).toContain('batches are larger (11.0 predicted, 10.0 served under jsq)')
    expect(predicted(-0.12)).not.toContain('predicted too small')
  })

  it('counts without a load whose result was known before', () => {
    const served = { prediction: { file: 'predicted.json', sha256: 'abc' } }
    const later = { ...servedResult(served), name: 'served-k4-b10-again' }
    const conditions = {
      ...(later as unknown as { conditions: object }).conditions,
      date: '2026-01-03T00:00:00Z',
    }
    const page = pageOf([servedResult(served), { ...later, conditions }], {
      predictions: new Map([['predicted.json', prediction(-0.12)]]),
    })
    expect(page).toContain('**4 of 4 changes of TPOT')
    expect(page).toContain(
      '“4 engines, 17/s, again” repeats a load whose result was known for eldr when it was predicted. Without it: **2 of 2**.',
    )
    expect(predicted(-0.12)).not.toContain('repeats a load')
  })

  it('says what local changes are, and names the files if they were recorded', () => {
    const changed = (more: object) => ({
      ...servedResult(),
      conditions: { ...CONDITIONS, modified: true, ...more },
    })
    expect(pageOf([changed({})])).toContain('Which files differed was not recorded')
    const named = pageOf([changed({ changed: ['src/cost/profile.ts'] })])
    expect(named).toContain('with local changes (`src/cost/profile.ts`)')
    expect(named).not.toContain('was not recorded')
  })

  it('refuses a prediction that was changed afterwards, or is missing', () => {
    expect(() => predicted(-0.1, 'def')).toThrow('its prediction predicted.json has changed since it ran')
    const missing = servedResult({ prediction: { file: 'predicted.json', sha256: 'abc' } })
    expect(() => pageOf([missing])).toThrow('its prediction predicted.json is missing')
  })

  it('compares a served union with the simulated one that learns costs', () => {
    const { points, ...rest } = parsePrediction('p.json', predictionOf(-0.1))
    const learnt = points.map(point => ({
      ...point,
      variant: point.variant === 'eldr' ? 'union@learnt' : 'jsq',
    }))
    expect(new Set(predictedRuns({ ...rest, points: learnt }, 17).map(({ policy }) => policy))).toEqual(
      new Set(['jsq', 'union']),
    )
  })

  it('says which costs union had, and what the events of streams do to ITL', () => {
    const page = (more: object, gaps: number) => {
      const runs = [0, 1].flatMap(round =>
        ['jsq', 'eldr'].map(policy => {
          const run = runOf(policy, round, 12, 40)
          return { ...run, itlMs: { ...run.itlMs, count: gaps }, perRequest: { outputTokens: [51, 51] } }
        }),
      )
      return pageOf([servedResult({ runs, ...more })])
    }
    expect(page({}, 97)).toContain('`routing.stepCost: learnt`), which has not been run on a GPU')
    expect(page({ stepCost: 'learnt' }, 97)).not.toContain('stepCost')
    expect(page({}, 97)).toContain('have 3.0\u00a0% fewer gaps between events than between tokens')
    expect(page({}, 100)).not.toContain('fewer gaps')
  })

  it('has what each connector adds, and which intervals exclude zero', () => {
    const added = (median: number, low: number, high: number) => ({ median: { median, low, high } })
    const variants = [
      {
        promptTokens: 128,
        legMs: { nixl: quantilesAt(12), multi: quantilesAt(12.2), counts: quantilesAt(12.8) },
        addedMs: { 'multi − nixl': added(0.1, -0.1, 0.4), 'counts − multi': added(0.5, 0.3, 0.8) },
        what: { nixl: 'NIXL alone', multi: 'MultiConnector around NIXL', counts: 'capture of counts' },
      },
    ]
    const page = pageOf([
      envelope('capture-profile', 'capture-profile', { captureProfile: { timers: [], variants } }),
    ])
    expect(page).toContain('| MultiConnector around NIXL | 12.20 | +0.10 (−0.10 to +0.40) |')
    expect(page).toContain('excludes zero for “capture of counts” at 128 tokens only')
  })

  it('says that policies do not know of padding, and which quantized experts ran', () => {
    const padded = (graphs: string, experts: number, readExperts: number, ms: number) => ({
      feature: `graph padding: batch 17, graphs of ${graphs}`,
      verdict: 'run',
      note: 'Padding.',
      figures: { experts, readExperts, stepMs: quantilesAt(ms) },
    })
    const steps = stepsOf((_, experts) => 500 + 60 * experts, { count: 40 })
    const quantized = {
      ...envelope('profile', 'profile-gpt', {
        profile: { steps, log: ['the MoE kernel does not report its choice: routers choose again'] },
      }),
      model: { ...MODEL, dtype: 'mxfp4', moeBackend: "'TRITON'" },
    }
    const features = [padded('16, 32', 52, 60, 4.5), padded('16, 17', 51, 51, 3.9)]
    const page = pageOf([envelope('features', 'features', { features }), quantized])
    expect(page).toContain('a batch of 17 read 60.0 experts per layer instead of 52.0')
    expect(page).toContain(
      '| MXFP4 experts, tiny6-wide, kernel TRITON | run | Dummy weights. Experts were counted in 40',
    )
  })

  it('has the line of step time over experts, and the bandwidth that it means', () => {
    const steps = stepsOf((_, experts) => 500 + 60 * experts)
    const values = [envelope('profile', 'profile-wide', { profile: { steps } })]
    const page = pageOf(values)
    // 6 layers of 47.2 MB in 60 µs
    expect(page).toMatch(
      /\| one engine alone \| 3,000 steps \| 0\.0600 ± 0\.0000 \| 0\.50 \| none \| 1\.00 \| 4\.72 \|/,
    )
    const figure = stepFigure(values.map(value => parseServedResult('profile-wide.json', value)!))!
    expect(figure).toMatch(/^<svg xmlns=/)
    expect(figure).toContain('one engine alone: 0.060 ms per expert.')
    expect(figure).toContain('class="dots"')
    expect(figure.length).toBeLessThan(100_000)
  })

  it('says how engines share the GPU, from their own experts and those of all', () => {
    const page = (ownSlope: number) => {
      const runs = [0, 1, 2].flatMap(round =>
        ['jsq', 'eldr'].map((policy, at) => {
          const mean = 36 + 2 * round + 3 * at
          const experts = Array.from({ length: 40 }, (_, i) => mean + (i % 9) - 4)
          const ms = experts.map(own => 2 + 0.24 * mean + ownSlope * (own - mean))
          return { ...runOf(policy, round, 2 + 0.24 * mean, mean), steps: { ms, experts, batch: experts } }
        }),
      )
      return pageOf([servedResult({ runs })])
    }
    expect(page(0.06)).toContain(
      'a share of 0.25. Taking turns layer by layer gives 0.25, equal bandwidth 1.00: they take turns',
    )
    expect(page(0.24)).toContain(
      'a share of 1.00. Taking turns layer by layer gives 0.25, equal bandwidth 1.00: they share bandwidth',
    )
    expect(page(0.06)).toMatch(
      /\| 4 engines \| 6 runs \| 0\.2400 ± 0\.0000 \| 2\.00 \| none \| 1\.00 \| 4\.72 \|/,
    )
  })

  it('shows a served profile beside the one in plain torch', async () => {
    const torch = await loadProfile('h200-qwen3-30b-a3b')
    const steps = stepsOf((batch, experts) => 5_000 + 10 * batch + 160 * experts)
    const value = envelope('profile', 'profile-qwen3-30b-a3b', { profile: { steps } })
    const result = parseServedResult('profile-qwen3-30b-a3b.json', value)!
    if (result.kind !== 'profile') throw new Error(result.kind)
    const { profile: served, fit } = servedProfile(result, torch)
    const page = pageOf([], { shapes: [{ served, fit, torch }] })
    expect(page).toContain('| h200-served-qwen3-30b-a3b | GPU-served |')
    expect(page).toContain('| h200-qwen3-30b-a3b | plain torch |')
  })

  it('has the cost of capture as differences of pairs', () => {
    const cell = (promptTokens: number, low: number, median: number, high: number, switched = true) => ({
      promptTokens,
      concurrency: 1,
      withMs: [11, 12, 13],
      withoutMs: [10, 11.5, 12.5],
      addedMs: { median: { median, low, high } },
      engineAddedMs: { median: { median: 0.2, low: 0.1, high: 0.25 } },
      switched,
    })
    const throughput = [{ promptTokens: 512, concurrency: 16, withPerSecond: 92.5, withoutPerSecond: 94.1 }]
    const pageWith = (...cells: object[]) =>
      pageOf([envelope('capture-cost', 'capture-cost', { captureCost: { cells, timers: [], throughput } })])
    expect(pageWith(cell(512, 0.4, 0.5, 0.6, false))).toContain(
      '| tiny6-wide, 6 × 64 | another server, without the plugin | 512 | 3 | 11.50 | +0.50 (+0.40 to +0.60) | +0.20 (+0.10 to +0.25) | · |',
    )
    expect(pageWith(cell(2048, 0.1, 0.2, 0.3))).toContain('| 0.3: met |')
    expect(pageWith(cell(2048, 0.1, 0.2, 0.4))).toContain('| 0.3: met at the median |')
    expect(pageWith(cell(2048, 0.2, 0.4, 0.5))).toContain('| 0.3: not met at the median |')
    expect(pageWith(cell(2048, 0.4, 0.5, 0.6))).toContain('| 0.3: missed |')
    expect(pageWith(cell(2048, -0.2, 0.4, 0.5))).toContain(
      '**The target of 0.3 ms with 6 × 64: undecided at 2,048 tokens.**',
    )
    expect(pageWith(cell(512, 0.4, 0.5, 0.6))).toContain(
      '16 requests of 512 tokens at once, tiny6-wide, run 1: 92.5 requests per second with the plugin, 94.1 without (−2\u00a0%). No loss of throughput can be told',
    )
  })

  it('has choices that differ from vLLM’s own, texts over NIXL, and what was run', () => {
    const captureExact = {
      cases: [
        {
          name: 'compiled, CUDA graphs',
          promptChoices: 189_888,
          promptDiffering: 0,
          decodeChoices: 21_504,
          decodeDiffering: 3,
          against: 'vLLM’s routed experts',
        },
      ],
      pd: { prompts: 40, equalTexts: 40, coldEqual: 36, signaturesRejected: 0, ticketsLeft: 1 },
    }
    const features = [{ feature: 'prefix caching', verdict: 'run', note: 'Counts stay exact.' }]
    const page = pageOf([
      envelope('capture-exact', 'capture-exact', { captureExact }),
      envelope('features', 'features', { features }),
    ])
    expect(page).toContain('| 0 of 189,888 | · | 3 of 21,504 | · |')
    expect(page).toContain(
      'in 40 of 40. On the first, cold pass: 36 of 40. 0 signatures rejected. 1 ticket left.',
    )
    expect(page).toContain('| prefix caching | run | Counts stay exact. |')
  })

  it('has transfers in one table, what drafts do to a step, and notes without the prefixes of a log', () => {
    const transfer = (tokens: number, transferMs: number) => ({
      feature: `KV transfer: NIXL alone, ${tokens} tokens`,
      verdict: 'run',
      note: `A transfer of ${tokens} tokens`,
      figures: { transferMs },
    })
    const drafts = {
      prompts: 14,
      observedSteps: 20,
      expertsPerStepAllLayers: 300,
      plainObservedSteps: 60,
      plainExpertsPerStepAllLayers: 250,
      drafted: 1200,
      accepted: 900,
    }
    const pageWith = (figures: object) =>
      pageOf([
        envelope('features', 'features', {
          features: [
            transfer(128, 1.5),
            transfer(2048, 13.8),
            { feature: 'drafts', verdict: 'run', note: '5 of 189888 choices.', figures },
            {
              feature: 'ranks',
              verdict: 'failed',
              note: 'The server did not start: ERROR 11-16 17:41:56 [multiproc_executor.py:901] a.b.SomeError: rank 1. INFO 11-16 17:41:56 [multiproc_executor.py:429] shutdown',
            },
          ],
        }),
      ])
    const page = pageWith(drafts)
    expect(page).toContain('| connectors | 128 tokens | 2,048 tokens |')
    expect(page).toContain('| NIXL alone | 1.50 | 13.80 |')
    expect(page).toContain('| ranks | failed | The server did not start: SomeError: rank 1. |')
    expect(page).toContain('| drafts | run | 5 of 189,888 choices. |')
    expect(page).toMatch(
      /\| drafts \| 900 of 1,200 \| 300 \/ 250 \(\+20\s%\) \| 20 \/ 60 \| 6,000 \/ 15,000 \(−60\s%\) \|/,
    )
    expect(page).toContain('Times are left out')
    const timed = pageWith({ ...drafts, warmSeconds64Tokens: 0.1, plainWarmSeconds64Tokens: 0.2 })
    expect(timed).toContain('| 0.10 / 0.20 |')
    expect(timed).not.toContain('Times are left out')
  })

  it('explains a slope that means more than the nominal bandwidth', () => {
    const page = (perExpert: number) =>
      pageOf([
        servedResult({
          runs: [0, 1, 2].flatMap(round =>
            ['jsq', 'eldr'].map((policy, at) => {
              const mean = 36 + 2 * round + 3 * at
              const experts = [mean - 1, mean + 1]
              const ms = experts.map(own => 2 + perExpert * own)
              return {
                ...runOf(policy, round, 2 + perExpert * mean, mean),
                steps: { ms, experts, batch: experts },
              }
            }),
          ),
        }),
      ])
    expect(page(0.23)).toContain('The nominal bandwidth of an H200 is 4.8 TB/s.')
    expect(page(0.25)).not.toContain('nominal bandwidth')
  })
})
