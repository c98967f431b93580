/**
 * 200 prompts in ten domains, greedy and with two seeds, under every decode policy: the tokens equal those of
 * a single worker.
 */
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

describe('200 prompts, greedy and sampled with two seeds, 32 tokens each', () => {
  it('have the same tokens under every policy and on a single worker', async () => {
    const beganMs = performance.now()
    const requests = requestsOf(promptsOf(20), [1, 2])
    expect(requests).toHaveLength(600)
    const { alone, underPolicy, decodeWorkers } = await collectAnswers(folder.path, {
      requests,
      tokens: 32,
      concurrency: 48,
      prefill: 2,
      decode: 3,
      coldCaches: true,
    })
    // The duration depends on the machine and is no reason to fail, but the log should show it.
    console.log(
      `${requests.length * (1 + underPolicy.size)} responses in ${((performance.now() - beganMs) / 1000).toFixed(0)} s`,
    )
    expect([...underPolicy.keys()]).toEqual([...POLICIES])
    for (const [policy, answers] of underPolicy)
      expect([policy, differences(requests, alone, answers)]).toEqual([policy, []])
    // Texts of two seeds differ, and requests were batched.
    expect(new Set(alone).size).toBeGreaterThan(590)
    for (const { tokens, steps } of decodeWorkers) expect(tokens / steps).toBeGreaterThan(1.5)
  }, 900_000)
})
