/**
 * Simulated switchback experiments: a cluster that switches between policies slot by slot, measured and
 * analysed by the code that a gateway and `eldr experiment` use.
 */
import { stepParts } from '../cost/profile.ts'
import { createRandom } from '../math/random.ts'
import { slotOrder, SlotRecord } from '../math/switchback.ts'
import { createDecodePolicy } from '../policy/create-policy.ts'
import type { DecodePolicy } from '../policy/decode-policy.ts'
import { createPrefillPolicy, DEFAULT_PREFILL_POLICY } from '../policy/prefill-policy.ts'
import type { RequestPool } from './requests.ts'
import { simulate } from './simulate.ts'
import { createStudyLibrary } from './study-library.ts'
import { arrivalsAt, type StudyData } from './study.ts'
import type { MeasuredSlot } from './switchback-analysis.ts'
import { parseTopology } from './topology.ts'
import { parseVariant } from './variant.ts'

export interface SwitchbackData extends Pick<StudyData, 'trace' | 'artifact' | 'profile' | 'topology'> {
  readonly slotSeconds: number
  readonly washoutSeconds: number
  readonly slots: number
}

export interface SwitchbackJob {
  /** Names of policies. Two equal ones are two policies of that name, told apart by `#2`. */
  readonly policies: readonly string[]
  readonly arrivals: StudyData['arrivals']
  /** Requests per second. */
  readonly rate: number
  readonly seed: number
}

/** More requests than arrive in the slots, since arrivals are random. */
const SURPLUS = 1.3

/** For `openPool`. The cluster runs for one slot before the first measured one. */
export async function prepare(
  data: SwitchbackData,
): Promise<(job: SwitchbackJob) => Promise<MeasuredSlot[]>> {
  const library = createStudyLibrary()
  const topology = parseTopology(data.topology)
  const profile = await library.profile(data.profile)
  const evaluation = await library.evaluation(data.trace, data.artifact, topology.decode)
  const { shape, artifact, predictor, replay, featuresOf } = evaluation
  const create = (name: string): DecodePolicy => {
    const { policy, tau, foresight } = parseVariant(name)!
    const options = {
      workers: topology.decode,
      shape,
      artifact,
      tau,
      cost: stepParts(profile, topology.ranks),
    }
    return createDecodePolicy(policy, { ...options, predictor: predictor(foresight) })!
  }

  return async ({ policies, arrivals, rate, seed }) => {
    const names = policies.map((name, at) => (policies.indexOf(name) === at ? name : `${name}#${at + 1}`))
    const all = policies.map(create)
    const random = createRandom(seed).fork(17)
    const treatments = names.map((name, at) => ({ name, policy: all[at]! }))
    const order = slotOrder(treatments, data.slots / policies.length, random)
    const slotMs = 1000 * data.slotSeconds
    const records = order.map(
      (_, slot) => new SlotRecord((slot + 1) * slotMs, 1000 * data.washoutSeconds, random.uniform),
    )
    const slotAt = (nowUs: number) => Math.floor(nowUs / 1000 / slotMs) - 1
    let current = all[0]!
    simulate({
      workload: { arrivals: arrivalsAt(arrivals, rate), rows: 'replacement' },
      requests: Math.ceil(SURPLUS * rate * data.slotSeconds * (data.slots + 1)),
      seed,
      replay,
      profile,
      topology,
      decodePolicy: switching(all, () => current),
      featuresOf,
      prefillPolicy: topology.prefill > 0 ? createPrefillPolicy(DEFAULT_PREFILL_POLICY) : undefined,
      onDispatch: nowUs => void (current = order[Math.max(0, slotAt(nowUs))]?.policy ?? current),
      onEnded: (pool, slot, nowUs) =>
        records[slotAt(nowUs)]?.ended(streamOf(pool, slot, nowUs), nowUs / 1000),
    })
    return order.map(({ name }, slot) => ({ policy: name, ...records[slot]!.figures((slot + 2) * slotMs) }))
  }
}

/** Decides by the current policy. All of them know every request, as after a change in a gateway. */
function switching(all: readonly DecodePolicy[], current: () => DecodePolicy): DecodePolicy {
  return {
    name: 'switching',
    pick: (...args) => current().pick(...args),
    dispatched(request, worker) {
      for (const policy of all) policy.dispatched?.(request, worker)
    },
    released(request, worker) {
      for (const policy of all) policy.released?.(request, worker)
    },
  }
}

function streamOf(pool: RequestPool, slot: number, nowUs: number) {
  const { arrivalUs, firstTokenUs, firstDecodeUs, decodeTokens } = pool
  const tokens = decodeTokens[slot]!
  const ttftUs = firstTokenUs[slot]! - arrivalUs[slot]!
  return {
    ageMs: (nowUs - arrivalUs[slot]!) / 1000,
    ttftMs: Number.isNaN(ttftUs) ? undefined : ttftUs / 1000,
    tpotMs: tokens > 1 ? (nowUs - firstDecodeUs[slot]!) / 1000 / (tokens - 1) : undefined,
    tokens: tokens + 1,
  }
}
