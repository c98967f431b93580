/** Cuts paths between machines, one way or both, and makes them slow or lossy. */
import { createRandom, type Random } from '../../../src/math/random.ts'
import type { Machine } from '../cluster/machines.ts'
import type { Rule } from '../../ops/netns/network.ts'
import type { Action } from './adversary.ts'

function path(ruleOf: (random: Random) => Rule, isBothWays = true): Action {
  return async ({ cluster, ledger }, { targets, seed }) => {
    const network = cluster.machines.network!
    const random = createRandom(seed)
    const [a, b] = (random.below(2) === 0 ? targets : targets.toReversed()) as [Machine, Machine]
    if (targets.includes('store')) ledger.storeDisturbed()
    const set = async (rule: Rule) => {
      await network.rule(a, b, rule)
      if (isBothWays) await network.rule(b, a, rule)
    }
    await set(ruleOf(random))
    return () => set({})
  }
}

export const networkFaults = {
  'cut-path': path(() => ({ cut: true })),
  'cut-one-way': path(() => ({ cut: true }), false),
  'slow-path': path(random => ({ delayMs: 20 + random.below(250), jitterMs: 20 })),
  'lossy-path': path(random => ({ loss: 0.02 + 0.25 * random.uniform() })),
} as const satisfies Record<string, Action>
