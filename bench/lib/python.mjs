// The Python side of a comparison: a virtual environment made from requirements.txt on first use. Without
// python3 or the packages `createPython` gives the reason, and the benchmarks run without the comparison.
import { createHash } from 'node:crypto'
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { runProcess } from './measure.mjs'

const bench = fileURLToPath(new URL('..', import.meta.url))
const venv = join(bench, '.venv')
const interpreter = join(venv, process.platform === 'win32' ? 'Scripts/python.exe' : 'bin/python')

/**
 * {run} or {missing: reason}. `run(script, args, env)` runs a script of bench/python: {wallMs, peakBytes,
 * result: parsed JSON}.
 */
export async function createPython() {
  const requirements = join(bench, 'requirements.txt')
  const wanted = createHash('sha256').update(readFileSync(requirements)).digest('hex')
  const marker = join(venv, 'requirements.sha256')
  try {
    if (!existsSync(marker) || readFileSync(marker, 'utf8') !== wanted) {
      process.stderr.write('bench: making bench/.venv from requirements.txt (first use) …\n')
      rmSync(venv, { recursive: true, force: true })
      await runProcess('python3', ['-m', 'venv', venv])
      await runProcess(interpreter, [
        '-m',
        'pip',
        'install',
        '--quiet',
        '--disable-pip-version-check',
        '-r',
        requirements,
      ])
      writeFileSync(marker, wanted)
    }
  } catch (error) {
    const why = error.code === 'ENOENT' ? 'there is no python3 on this machine' : error.message
    return { missing: `NumPy/SciPy comparison skipped: ${why}` }
  }
  return {
    async run(script, args, env) {
      const { stdout, ...run } = await runProcess(interpreter, [join(bench, 'python', script), ...args], {
        env,
      })
      return { ...run, result: JSON.parse(stdout) }
    },
  }
}
