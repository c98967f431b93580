/**
 * The cost by which shadow policies are compared, on lab16: its sign is that of an experiment, whichever of
 * the two policies is in force.
 */
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { stepParts } from '../src/cost/profile.ts'
import { createRandom } from '../src/math/random.ts'
import { createDecodePolicy } from '../src/policy/create-policy.ts'
import type { PolicyName } from '../src/policy/decode-policy.ts'
import { createStepJudge } from '../src/policy/step-judge.ts'
import { simulate } from '../src/sim/simulate.ts'
import { createStudyLibrary } from '../src/sim/study-library.ts'
import { arrivalsAt } from '../src/sim/study.ts'
import { parseTopology } from '../src/sim/topology.ts'

const library = createStudyLibrary()
const topology = parseTopology('4D')
const trace = fileURLToPath(new URL('../data/lab16-task.evaluation.safetensors', import.meta.url))

/** Mean cost of the shadow policy's decisions as a share of that of the policy in force, less 1. */
async function judged(inForce: PolicyName, shadow: PolicyName, rate: number): Promise<number> {
  const profile = await library.profile('h200-first')
  const { shape, replay, featuresOf, predictor } = await library.evaluation(trace, undefined, topology.decode)
  const options = {
    workers: topology.decode,
    shape,
    cost: stepParts(profile, topology.ranks),
    predictor: predictor(),
  }
  const [own, other] = [inForce, shadow].map(name => createDecodePolicy(name, options)!)
  const judge = createStepJudge({ ...options, layers: shape.layers })
  const all = [own!, other!, judge]
  const random = createRandom(3)
  const sums = { inForce: 0, shadow: 0 }
  simulate({
    workload: { arrivals: arrivalsAt('poisson', rate), rows: 'replacement' },
    requests: 800,
    seed: 1,
    replay,
    profile,
    topology,
    featuresOf,
    decodePolicy: {
      name: 'judged',
      pick(request, candidates, context) {
        const decision = own!.pick(request, candidates, context)
        const { worker } = other!.pick(request, candidates, { random: random.uniform })
        const after = judge.after(request, candidates)!
        sums.inForce += after(decision.worker)!.cost
        sums.shadow += after(worker)!.cost
        return decision
      },
      dispatched: (request, worker) => all.forEach(each => each.dispatched?.(request, worker)),
      released: (request, worker) => all.forEach(each => each.released?.(request, worker)),
    },
  })
  return sums.shadow / sums.inForce - 1
}

describe('the cost of a shadow policy on lab16', () => {
  it.each([50, 100])('is higher for jsq beside union, at %i requests per second', async rate => {
    expect(await judged('union', 'jsq', rate)).toBeGreaterThan(0.005)
  })

  it.each([50, 100])('is lower for union beside jsq, at %i requests per second', async rate => {
    expect(await judged('jsq', 'union', rate)).toBeLessThan(-0.005)
  })
})
