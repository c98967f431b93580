/**
 * Short runs of `eldr demo` and of the sweep that starts its own cluster: tests the output, not the speed of
 * this machine.
 */
import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { temporaryFolder } from '../trace-support.ts'
import { PROGRAM } from '../worker/processes.ts'

const folder = temporaryFolder()
afterAll(() => folder.remove())

function eldr(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  return new Promise(resolve => {
    execFile(
      process.execPath,
      [PROGRAM, ...args],
      { cwd: folder.path, maxBuffer: 1 << 24 },
      (error, out, err) => resolve({ code: error === null ? 0 : Number(error.code), out, err }),
    )
  })
}

const POLICIES = ['round_robin', 'eldr', 'union']
const SHORT = ['--prefill', '1', '--decode', '2', '--rate', '45', '--seconds', '2', '--speed', '1']

describe('eldr demo', () => {
  it('prints one table with measured and simulated values, bars, and a page; outputs are the same', async () => {
    const { code, out, err } = await eldr('demo', ...SHORT, '--report', 'demo.html')
    expect(err).toMatch(/1P2D on this machine: lab16 replayed.*90 requests/)
    for (const policy of POLICIES) {
      expect(out).toMatch(new RegExp(`\\n  ${policy} +\\d+\\.\\d\\d +\\d+\\.\\d\\d .* yes\\n`))
      expect(out).toMatch(new RegExp(`\\n  ${policy} +█.* \\d+\\.\\d\\d ms`))
      expect(err).toMatch(new RegExp(`${policy}: TPOT p50`))
    }
    expect(out).toContain('Outputs identical: yes (90 requests compared byte for byte under 3 policies).')
    expect(out).toMatch(/Measured on \d+ cores of .*, Node v\d+.*1P2D.*h200-first.*seed 0/)
    expect(code).toBe(0)
    const page = readFileSync(join(folder.path, 'demo.html'), 'utf8')
    expect(page).toMatch(/<svg[^]*round_robin[^]*simulated/)
    expect(page).toContain('h200-first')
  })

  it('prints the same as JSON', async () => {
    const { code, out } = await eldr('demo', ...SHORT, '--json', '--quiet', '--seed', '3')
    const result = JSON.parse(out) as {
      policies: { policy: string; activeExperts: number; live: { requests: object } }[]
    }
    expect(result).toMatchObject({
      format: 'eldr.demo.v1',
      topology: '1P2D',
      profile: 'h200-first',
      outputsIdentical: true,
      seed: 3,
      requests: 90,
      machine: { cores: expect.any(Number) },
    })
    expect(result.policies.map(({ policy }) => policy)).toEqual(POLICIES)
    for (const { live, activeExperts } of result.policies) {
      expect(live.requests).toMatchObject({ sent: 90, failed: 0 })
      expect(activeExperts).toBeGreaterThan(8)
      expect(activeExperts).toBeLessThan(128)
    }
    expect(code).toBe(0)
  })
})

describe('eldr bench --sweep without --url', () => {
  it('starts its own cluster and compares with the simulator', async () => {
    const { code, out } = await eldr(
      'bench',
      '--sweep',
      '--topology',
      '1P2D',
      '--rates',
      '40',
      '--requests',
      '60',
      '--json',
      '--quiet',
    )
    const { cells, notes } = JSON.parse(out) as { cells: object[]; notes: string[] }
    expect(cells).toMatchObject(
      POLICIES.map(policy => ({
        policy,
        rate: 40,
        live: { requests: { sent: 60, failed: 0 } },
        simulated: { topology: '1P2D' },
      })),
    )
    expect(notes.join(' ')).not.toMatch(/another artifact|prefix cache/)
    expect(code).toBe(0)
  })
})
