// Live recalibration, simulated: what a refit was predicted to give beside what it gave, what matched traffic
// risks, and how soon and how often the drift detector raises an alarm.
//
//   node bench/adapt.mjs [--seeds 5] [--out docs/evidence/results/adapt.json]
//
// Traffic comes from the shipped lab16 traces. docs/evidence/adapt.md is made from the file. Needs
// `npm run build`; takes about five minutes on two cores.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { attempt } from '../dist/adapt/attempt.js'
import { DriftDetector } from '../dist/adapt/drift-detector.js'
import { isWorthASwap } from '../dist/adapt/judge.js'
import { LiveSample } from '../dist/adapt/live-sample.js'
import { liveRows, ranksOf } from '../dist/adapt/traffic.js'
import { stepParts } from '../dist/cost/profile.js'
import { loadProfile } from '../dist/cost/profile-file.js'
import { readArtifact } from '../dist/fit/artifact-read.js'
import { writeArtifact } from '../dist/fit/artifact-write.js'
import { fit, FIT_DEFAULTS } from '../dist/fit/fit.js'
import { createStages } from '../dist/fit/stages.js'
import { createRandom } from '../dist/math/random.js'
import { meanInterval } from '../dist/sim/confidence.js'
import { mixWeights } from '../dist/sim/mix-draw.js'
import { openStudy } from '../dist/sim/study-pool.js'
import { withTrace } from '../dist/trace/trace.js'

const { values: options } = parseArgs({
  options: { seeds: { type: 'string', default: '5' }, out: { type: 'string' } },
})
const seeds = Array.from({ length: Number(options.seeds) }, (_, seed) => seed)
const MIXES = ['task', 'lang']
const POLICIES = ['eldr', 'union']
const WORKERS = 8
const RATE = 200
const RUN_SEEDS = [0, 1, 2]
const MIN_GAIN = 0.01
/** Of the 400 requests of an evaluation trace; the others are served after the swap. */
const MATCHED_SAMPLE = 280
const base = {
  profile: 'h200-first',
  topology: `${WORKERS}D`,
  requests: 6000,
  arrivals: 'poisson',
  rows: 'passes',
}
const data = (mix, split) => new URL(`../data/lab16-${mix}.${split}.safetensors`, import.meta.url).pathname
const say = text => process.stderr.write(`${text}\n`)
/** Ranks are given to the detector as they are. */
const IDENTITY = [
  { q: 0, value: 0 },
  { q: 1, value: 1 },
]
const folder = mkdtempSync(join(tmpdir(), 'eldr-adapt-'))

try {
  const cost = stepParts(await loadProfile(base.profile))
  const traffic = {}
  for (const mix of MIXES) traffic[mix] = await prepare(mix)
  const pool = openStudy({ ...base, trace: traffic.task.evaluation })
  const figures = {
    workers: WORKERS,
    rate: RATE,
    requests: base.requests,
    profile: base.profile,
    runSeeds: RUN_SEEDS.length,
    minGain: MIN_GAIN,
    matchedSample: MATCHED_SAMPLE,
    swaps: await swaps(),
    matched: await matched(),
    drift: drift(),
  }
  await pool.close()
  const text = `${JSON.stringify(figures, null, 1)}\n`
  if (options.out === undefined) process.stdout.write(text)
  else writeFileSync(options.out, text)

  /** Requests of one mix reach a gateway whose artifact was fitted on the other. */
  async function swaps() {
    const found = []
    for (const seed of seeds)
      for (const to of MIXES)
        for (const policy of POLICIES) {
          const from = MIXES.find(mix => mix !== to)
          const reported = seed % 2 === 0
          const result = attemptOn(from, policy, shuffled(traffic[to].calibrationRows, seed), reported, seed)
          const fresh = join(folder, `${from}-${to}-${policy}-${seed}.safetensors`)
          await writeArtifact(fresh, result.artifact)
          const [old, next, own] = await tpots(policy, to, [
            traffic[from].artifact,
            fresh,
            traffic[to].artifact,
          ])
          found.push({
            from,
            to,
            policy,
            seed,
            judgedBy: result.judgedBy,
            gain: result.gain.mean,
            gainHalf: result.gain.half,
            accepted: isWorthASwap(result.gain, MIN_GAIN),
            realised: meanInterval(next.map(({ mean }, s) => 1 - mean / old[s].mean)),
            realisedP99: meanInterval(next.map(({ p99 }, s) => 1 - p99 / old[s].p99)),
            own: meanInterval(own.map(({ mean }, s) => 1 - mean / old[s].mean)),
          })
          const last = found.at(-1)
          say(
            `${from} → ${to} ${policy} ${last.judgedBy}: ${last.gain.toFixed(3)} ± ${last.gainHalf.toFixed(3)}, realised ${last.realised.mean.toFixed(3)}`,
          )
        }
    return found
  }

  /** Requests of the mix that the artifact was fitted on: attempts that the detector would not make. */
  async function matched() {
    const found = []
    for (const seed of Array.from({ length: 2 * seeds.length }, (_, at) => at))
      for (const mix of MIXES)
        for (const policy of POLICIES) {
          const rows = shuffled([...traffic[mix].rows.keys()], seed)
          const sample = rows.slice(0, MATCHED_SAMPLE).map(row => traffic[mix].rows[row])
          const result = attemptOn(mix, policy, sample, seed % 2 === 0, seed)
          const accepted = isWorthASwap(result.gain, MIN_GAIN)
          const one = {
            mix,
            policy,
            seed,
            judgedBy: result.judgedBy,
            gain: result.gain.mean,
            gainHalf: result.gain.half,
            accepted,
          }
          if (!accepted) found.push({ ...one, change: 0 })
          else {
            const fresh = join(folder, `matched-${mix}-${policy}-${seed}.safetensors`)
            await writeArtifact(fresh, result.artifact)
            const rowList = Int32Array.from(rows.slice(MATCHED_SAMPLE))
            const [old, next] = await tpots(policy, mix, [traffic[mix].artifact, fresh], { rowList })
            found.push({
              ...one,
              change: meanInterval(next.map(({ mean }, s) => mean / old[s].mean - 1)).mean,
            })
          }
          say(
            `matched ${mix} ${policy} ${seed}: ${result.gain.mean.toFixed(3)} ± ${result.gain.half.toFixed(3)} ${accepted ? `accepted, change ${found.at(-1).change.toFixed(4)}` : ''}`,
          )
        }
    return found
  }

  /** Alarms in a week of matched traffic, and requests until an alarm on other traffic. */
  function drift() {
    const PER_SECOND = 5
    const DAY = 86_400
    return MIXES.map(mix => {
      const { rows, fitted } = traffic[mix]
      const other = MIXES.find(each => each !== mix)
      const [ranks, foreign] = [ranksOf(rows, fitted), ranksOf(traffic[other].rows, fitted)]
      const domains = [...new Set(rows.map(({ domain }) => domain))]
      const rowsOf = domains.map(name => [...rows.keys()].filter(row => rows[row].domain === name))
      const shares = rowsOf.map(({ length }) => length / rows.length)
      const week = weightsAt => {
        const random = createRandom(1)
        let detector = new DriftDetector(IDENTITY)
        let alarms = 0
        for (let at = 0; at < 7 * DAY * PER_SECOND; at++) {
          const own = rowsOf[pickedFrom(weightsAt(at / PER_SECOND), random)]
          if (!detector.add(ranks[own[random.below(own.length)]], at)) continue
          alarms++
          detector = new DriftDetector(IDENTITY)
        }
        return alarms
      }
      const delays = Array.from({ length: 200 }, (_, seed) => {
        const random = createRandom(seed)
        const detector = new DriftDetector(IDENTITY)
        for (let at = 0; at < 1000; at++) detector.add(ranks[random.below(ranks.length)], at)
        let at = 1000
        while (!detector.add(foreign[random.below(foreign.length)], at)) at++
        return at - 999
      }).sort((a, b) => a - b)
      return {
        mix,
        perSecond: PER_SECOND,
        weekAlarms: week(() => shares),
        dayAlarms: week(mixWeights({ kind: 'rotation', daySeconds: DAY }, domains, shares)),
        meanRank: mean(ranks),
        foreignRank: mean(foreign),
        delayP50: delays[100],
        delayMax: delays.at(-1),
        lowestDomain: domains
          .map((name, at) => ({ name, rank: mean(rowsOf[at].map(row => ranks[row])), share: shares[at] }))
          .filter(({ share }) => share >= 0.05)
          .sort((a, b) => a.rank - b.rank)[0],
      }
    })
  }

  function attemptOn(mix, policy, rows, reported, seed) {
    const sample = new LiveSample({ capacity: 1024, halfLifeMs: 300_000, random: createRandom(seed) })
    rows.forEach(({ counts, pattern }, at) => {
      sample.offer({ id: `${at}`, counts }, 40 * at)
      if (reported) sample.report(`${at}`, pattern)
    })
    return attempt({
      sample: sample.snapshot(),
      artifact: traffic[mix].fitted,
      workers: Array.from({ length: WORKERS }, (_, cluster) => ({ cluster, fixed: false })),
      inflight: [],
      policy,
      tau: 0.1,
      cost,
      meanInflight: traffic[mix].inflight,
      seed,
      parentSha256: '',
      atMs: 0,
    })
  }

  /** TPOT of each artifact by seed: mean and p99. */
  async function tpots(policy, mix, artifacts, setting = {}) {
    const jobs = artifacts.flatMap(artifact =>
      RUN_SEEDS.map(seed => ({
        variant: policy,
        rate: RATE,
        seed,
        setting: { trace: traffic[mix].evaluation, artifact, ...setting },
      })),
    )
    const runs = await pool.run(jobs)
    return artifacts.map((_, at) =>
      runs.slice(at * RUN_SEEDS.length, (at + 1) * RUN_SEEDS.length).map(({ tpotMs }) => tpotMs),
    )
  }
} finally {
  rmSync(folder, { recursive: true, force: true })
}

async function prepare(mix) {
  const artifact = join(folder, `${mix}.safetensors`)
  const fitted = await withTrace(data(mix, 'calibration'), trace =>
    fit(trace, { ...FIT_DEFAULTS, workers: WORKERS }, createStages()),
  )
  await writeArtifact(artifact, fitted.artifact)
  return {
    artifact,
    fitted: await readArtifact(artifact),
    evaluation: data(mix, 'evaluation'),
    rows: await liveRows(data(mix, 'evaluation')),
    calibrationRows: await liveRows(data(mix, 'calibration')),
    inflight: 13 * WORKERS,
  }
}

function shuffled(list, seed) {
  const random = createRandom(seed)
  const order = [...list]
  for (let at = order.length - 1; at > 0; at--) {
    const other = random.below(at + 1)
    ;[order[at], order[other]] = [order[other], order[at]]
  }
  return order
}

function pickedFrom(weights, random) {
  let left = random.uniform() * weights.reduce((a, b) => a + b, 0)
  return Math.max(
    0,
    weights.findIndex(weight => (left -= weight) < 0),
  )
}

function mean(values) {
  return values.reduce((a, b) => a + b, 0) / values.length
}
