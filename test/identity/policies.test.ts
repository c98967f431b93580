/** The proof of policies.identity.ts at a tenth of its size: two prompts of each domain, greedy and with one seed, under every policy. */
import { afterAll, describe, expect, it } from 'vitest'
import { POLICIES } from '../../src/policy/decode-policy.ts'
import { temporaryFolder } from '../trace-support.ts'
import { killUps } from '../up/up-process.ts'
import { killAll } from '../worker/processes.ts'
import { collectAnswers, differences, promptsOf, requestsOf } from './answers.ts'

const folder = temporaryFolder()
afterAll(async () => {
  killUps()
  await killAll()
  folder.remove()
})

describe('20 prompts, greedy and sampled, 32 tokens each', () => {
  it('have the same tokens under every policy, and on one worker alone', async () => {
    const requests = requestsOf(promptsOf(2), [1])
    const plan = { requests, tokens: 32, concurrency: 20, prefill: 1, decode: 3, coldCaches: true }
    const { alone, underPolicy, decodeWorkers } = await collectAnswers(folder.path, plan)
    expect([...underPolicy.keys()]).toEqual([...POLICIES])
    for (const [policy, answers] of underPolicy) expect([policy, differences(requests, alone, answers)]).toEqual([policy, []])
    expect(new Set(alone).size).toBe(requests.length)
    // All of them decoded, in batches.
    for (const { tokens, steps } of decodeWorkers) expect(tokens / steps).toBeGreaterThan(1.5)
  }, 300_000)
})
