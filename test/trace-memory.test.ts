/**
 * A trace of the paper's size (14,000 requests, 48 layers, 128 experts; 172 MB of counts) can be read in
 * little memory.
 */
import { execFileSync } from 'node:child_process'
import { closeSync, ftruncateSync, openSync, writeFileSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { compileModules, rawFile, temporaryFolder } from './trace-support.ts'

const REQUESTS = 14_000
const CELLS = 48 * 128
const MAX_RESIDENT = 300e6

const folder = temporaryFolder()
afterAll(folder.remove)

describe('a large trace', () => {
  it('is read in chunks of rows within 300 MB', () => {
    const path = join(folder.path, 'large.safetensors')
    const bytes = REQUESTS * CELLS * 2
    const metadata = { format: 'eldr.trace.v1', model: 'large', layers: '48', experts: '128', top_k: '8' }
    const entry = { dtype: 'U16', shape: [REQUESTS, 48, 128], data_offsets: [0, bytes] }
    const start = rawFile(JSON.stringify({ __metadata__: metadata, prefill_counts: entry }))
    const file = openSync(path, 'w')
    writeSync(file, start)
    ftruncateSync(file, start.length + bytes) // sparse: zeros that take no disk space
    // the last count of the last request
    writeSync(file, Buffer.from([42, 0]), 0, 2, start.length + bytes - 2)
    closeSync(file)

    compileModules(folder.path, ['trace/trace.ts'])
    writeFileSync(
      join(folder.path, 'stream.mjs'),
      `import { openTrace } from './trace/trace.js'
      const trace = await openTrace(process.argv[2])
      let sum = 0
      for (let from = 0; from < trace.requests; from += 256) {
        for (const count of await trace.prefillCounts(from, Math.min(from + 256, trace.requests))) sum += count
      }
      await trace.sha256()
      await trace.close()
      console.log(JSON.stringify({ sum, resident: process.resourceUsage().maxRSS * 1024 }))`,
    )
    const output = execFileSync(process.execPath, [join(folder.path, 'stream.mjs'), path], {
      encoding: 'utf8',
    })
    const { sum, resident } = JSON.parse(output) as { sum: number; resident: number }
    expect(sum).toBe(42)
    expect(resident).toBeLessThan(MAX_RESIDENT)
  })
})
