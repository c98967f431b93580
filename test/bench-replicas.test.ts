/** bench/replicas.mjs as people run it; its figures are not looked at, only that it makes them. */
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'

const program = fileURLToPath(new URL('../bench/replicas.mjs', import.meta.url))
function bench(...args: string[]) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [program, ...args], { encoding: 'utf8' })
  return { code: status, out: stdout, err: stderr }
}

describe('bench/replicas.mjs', () => {
  it.each([
    [['--quik'], "Unknown option '--quik'"],
    [['--seconds', 'soon'], '--seconds soon: expected a whole number from 1 to 3600'],
    [['--workers', '0'], '--workers 0: expected a whole number from 1 to 1024'],
  ])('says what flags there are when it is given %s', (args, words) => {
    const { code, out, err } = bench(...args)
    expect(code).toBe(2)
    expect(out).toBe('')
    expect(err).toBe(
      `${words}\nThere are --quick, --seconds VALUE, --workers VALUE, --markdown, --trace VALUE.\n`,
    )
  })

  it('runs all of it in seconds with --quick, and says that it did', () => {
    const { code, out, err } = bench('--quick', '--markdown', '--workers', '4')
    expect(err).toBe('')
    expect(code).toBe(0)
    expect(out).toContain('4 decode workers')
    expect(out).toContain('Quick run: not for quoting')
    expect(out.match(/^\| .* (jsq|union) .* µs .* % \|$/gm)).toHaveLength(8)
  })
})
