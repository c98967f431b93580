/** aiperf, a public load client: it must find no error, and count the tokens that there were. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Cluster, startCluster } from '../gateway/cluster.ts'
import { AIPERF, has, PYTHON, run, script } from './tools.ts'

const REQUESTS = 60
const TOKENS = 16

describe.runIf(has('aiperf', AIPERF, '--version'))('aiperf', () => {
  let cluster: Cluster
  let folder: string
  beforeAll(async () => {
    cluster = await startCluster({ decodeOptions: { gapMs: 2 } })
    folder = mkdtempSync(join(tmpdir(), 'eldr-aiperf-'))
    const { code, err } = await run(PYTHON, [script('tokenizer.py'), join(folder, 'tokenizer')])
    if (code !== 0) throw new Error(err)
  })
  afterAll(async () => {
    rmSync(folder, { recursive: true, force: true })
    await cluster.stop()
  })

  it.each(['chat', 'completions'])('measures %s without an error', async type => {
    const load = [
      '--concurrency',
      '8',
      '--request-count',
      String(REQUESTS),
      '--synthetic-input-tokens-mean',
      '64',
      '--output-tokens-mean',
      String(TOKENS),
    ]
    // A path that begins with ./: it takes any other for the name of a model that it should download.
    const what = [
      '--model',
      'fake',
      '--tokenizer',
      './tokenizer',
      '--url',
      cluster.url,
      '--endpoint-type',
      type,
      '--streaming',
    ]
    const how = ['--use-server-token-count', '--ui', 'none', '--artifact-dir', `out-${type}`]
    const { code, err, out } = await run(AIPERF, ['profile', ...what, ...load, ...how], { cwd: folder })
    expect([code, code === 0 ? '' : `${out}\n${err}`]).toEqual([0, ''])
    const report = JSON.parse(
      readFileSync(join(folder, `out-${type}`, 'profile_export_aiperf.json'), 'utf8'),
    ) as Record<string, { avg: number }>
    expect(report['request_count']!.avg).toBe(REQUESTS)
    expect(report['error_request_count']?.avg ?? 0).toBe(0)
    expect(report['output_sequence_length']!.avg).toBe(TOKENS)
    await cluster.idle()
    expect(cluster.leftovers()).toEqual({ inflight: 0, tokens: 0, active: 0 })
  })
})
