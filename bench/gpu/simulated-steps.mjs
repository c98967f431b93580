// Takes decode steps out of a simulation, with the experts of every request and layer, for step_profile.py
// --steps.
//
//   node bench/gpu/simulated-steps.mjs --trace EVALUATION --artifact ARTIFACT --out STEPS.json [--steps 300]
//     [--rate 100] [--policy union]
//
// Steps are spread evenly over the middle of one run of 16 decode workers. Needs `npm run build` first.
import { writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { prepare } from '../../dist/sim/study.js'

const { values: options } = parseArgs({
  options: {
    trace: { type: 'string' },
    artifact: { type: 'string' },
    out: { type: 'string' },
    steps: { type: 'string', default: '300' },
    rate: { type: 'string', default: '100' },
    policy: { type: 'string', default: 'union' },
    profile: { type: 'string', default: 'h200-qwen3-30b-a3b' },
  },
})
const wanted = Number(options.steps)
const study = {
  trace: options.trace,
  artifact: options.artifact,
  profile: options.profile,
  topology: '16D',
  requests: 3000,
  arrivals: 'poisson',
  rows: 'passes',
}
const job = { variant: options.policy, rate: Number(options.rate), seed: 0 }

let total = 0
await (
  await prepare(study, () => total++)
)(job)
const [from, to] = [Math.floor(total * 0.2), Math.floor(total * 0.8)]
const every = (to - from) / wanted
const steps = []
let seen = 0
const run = await prepare(study, worker => {
  if (seen++ >= from + steps.length * every && steps.length < wanted) steps.push(stepOf(worker))
})
await run(job)
writeFileSync(options.out, JSON.stringify(steps))
console.log(
  `${steps.length} of ${total} steps, batch ${Math.min(...steps.map(({ batch }) => batch))} to ${Math.max(...steps.map(({ batch }) => batch))}`,
)

/**
 * {batch, context_tokens: [request], experts: [layer][request][k], modelled_us} of the step that a worker
 * begins.
 */
function stepOf(worker) {
  const members = Array.from({ length: worker.batch }, (_, at) => worker.member(at))
  const { layers, wordsPerLayer } = worker.shape
  const idsOf = (words, layer) => {
    const ids = []
    for (let word = 0; word < wordsPerLayer; word++) {
      for (let bits = words[layer * wordsPerLayer + word]; bits !== 0; bits &= bits - 1)
        ids.push(32 * word + 31 - Math.clz32(bits & -bits))
    }
    return ids
  }
  const experts = Array.from({ length: layers }, (_, layer) =>
    members.map(({ words }) => idsOf(words, layer)),
  )
  return {
    batch: worker.batch,
    context_tokens: members.map(({ contextTokens }) => contextTokens),
    experts,
    modelled_us: worker.stepUs,
  }
}
