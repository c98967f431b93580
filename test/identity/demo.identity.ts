/** `eldr demo --backend tiny`, shortened: checks the output, not the performance of this machine. */
import { execFile } from 'node:child_process'
import { describe, expect, it } from 'vitest'
import { PROGRAM } from '../worker/processes.ts'

function eldr(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  return new Promise(resolve => {
    execFile(process.execPath, [PROGRAM, ...args], { maxBuffer: 1 << 24 }, (error, out, err) =>
      resolve({ code: error === null ? 0 : Number(error.code), out, err }),
    )
  })
}

const POLICIES = ['round_robin', 'eldr', 'union']

describe('eldr demo --backend tiny', () => {
  it('computes the prompts of its trace with the same output under every policy, next to the simulator', async () => {
    const { code, out, err } = await eldr(
      'demo',
      '--backend',
      'tiny',
      '--prefill',
      '1',
      '--decode',
      '2',
      '--rate',
      '20',
      '--seconds',
      '4',
      '--speed',
      '0.3',
      '--json',
    )
    expect(err).toMatch(
      /1P2D on this machine: tiny6 computed, step times from profile h200-first at 0.3× speed. 24 requests/,
    )
    const result = JSON.parse(out) as {
      policies: {
        policy: string
        activeExperts: number
        late: number
        live: { requests: object }
        simulated: { activeExperts: number }
      }[]
    }
    expect(result).toMatchObject({
      format: 'eldr.demo.v1',
      model: 'tiny6',
      computed: true,
      outputsIdentical: true,
      requests: 24,
      trace: 'tiny6-prompts.evaluation.safetensors',
    })
    expect(result.policies.map(({ policy }) => policy)).toEqual(POLICIES)
    for (const { live, activeExperts, simulated, late } of result.policies) {
      expect(live.requests).toMatchObject({ sent: 24, failed: 0 })
      expect(activeExperts).toBeGreaterThan(8)
      expect(activeExperts).toBeLessThan(64)
      expect(simulated.activeExperts).toBeGreaterThan(8)
      // Steps are stretched to the profile’s time, never shortened; how late they are depends on the machine.
      expect(late).toBeGreaterThan(-0.05)
    }
    expect(code).toBe(0)
  }, 240_000)
})
