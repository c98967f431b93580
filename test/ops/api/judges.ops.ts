/**
 * Third-party validators on a running gateway: its OpenAPI document, and thousands of requests generated from
 * it.
 */
import { execFile } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { run } from '../../clients/tools.ts'
import { temporaryFolder } from '../../trace-support.ts'
import { killAll, PROGRAM } from '../../worker/processes.ts'
import { type FuzzedCluster, KEY, SERVING, SPARE, startFuzzedCluster, TOKEN } from './fuzzed-cluster.ts'
import { FOLDER, SCHEMATHESIS, SPEC_VALIDATOR } from './tools.ts'

/** The gateway starts at about 100 MB and reaches its working size within some thousand requests. */
const MAX_BYTES = 400e6
const SEED = 20_261

const folder = temporaryFolder()
const artifact = join(folder.path, 'artifact.safetensors')
let cluster: FuzzedCluster
beforeAll(async () => {
  const trace = new URL('../../../data/lab16-task.calibration.safetensors', import.meta.url).pathname
  await promisify(execFile)(process.execPath, [PROGRAM, 'fit', trace, '--workers', '3', '--out', artifact])
})
afterEach(killAll)
afterAll(() => folder.remove())

async function fuzz(...more: string[]): Promise<{ code: number | null; out: string }> {
  const env = {
    ...process.env,
    PYTHONPATH: FOLDER,
    PYTHONDONTWRITEBYTECODE: '1',
    ELDR_FUZZ_KEY: KEY,
    ELDR_FUZZ_TOKEN: TOKEN,
    ELDR_FUZZ_SERVING: SERVING.join(','),
    ELDR_FUZZ_SPARE: SPARE,
  }
  const { code, out, err } = await run(
    SCHEMATHESIS,
    [
      '--no-color',
      '--config-file',
      join(FOLDER, 'schemathesis.toml'),
      'run',
      `${cluster.gateway.url}/openapi.json`,
      '--seed',
      String(SEED),
      ...more,
    ],
    { cwd: folder.path, env },
  )
  return { code, out: `${out}${err}` }
}

/** The state that a gateway must return to after the fuzz. */
async function isWell(): Promise<void> {
  expect(cluster.gateway.child.exitCode).toBeNull()
  expect(await cluster.leftovers()).toEqual([])
  expect(cluster.troubles()).toEqual([])
  expect(await cluster.memoryBytes()).toBeLessThan(MAX_BYTES)
  for (const worker of cluster.workers) expect(worker.said()).not.toMatch(/"level":[56]0/)
  expect(await cluster.gateway.stop()).toBe(0)
}

describe.each([
  ['with keys and a token', true, ['--artifact', artifact]],
  ['without them, on loopback', false, ['--policy', 'union']],
])('a gateway %s', (_, withSecrets, flags) => {
  it('serves a valid OpenAPI document and conforms to it for any request', async () => {
    cluster = await startFuzzedCluster(folder.path, withSecrets, flags)
    const document = join(folder.path, 'openapi.json')
    await writeFile(document, await (await fetch(`${cluster.gateway.url}/openapi.json`)).text())
    const judged = await run(SPEC_VALIDATOR, [document])
    expect(`${judged.out}${judged.err}`).toMatch(/: OK\s*$/)
    const { code, out } = await fuzz(
      '--checks',
      'all',
      '--max-examples',
      '25',
      '--phases',
      'examples,coverage,fuzzing,stateful',
    )
    expect(code, out).toBe(0)
    // Check the scope: every operation except the two that schemathesis.toml excludes, and over a thousand
    // requests.
    expect(out).toMatch(/Tested: 41\n/)
    expect(Number(/(\d+) generated/.exec(out)![1])).toBeGreaterThan(1_000)
    await isWell()
  })
})
