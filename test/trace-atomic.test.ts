/**
 * Kills a process that keeps rewriting one file, at random moments, while this one keeps reading it: every
 * read shows a complete file, old or new. The writer runs the compiled src/ in its own Node process.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { withSafetensors } from '../src/trace/safetensors-file.ts'
import { writeSafetensors } from '../src/trace/safetensors-write.ts'
import { compileModules, temporaryFolder } from './trace-support.ts'

const KILLS = 25
const VALUES = 200_000 // in a tensor that repeats one value: a mixture of two files would show

const code = temporaryFolder()
const target = temporaryFolder()
const path = join(target.path, 'value.safetensors')
const script = join(code.path, 'rewrite.mjs')

beforeAll(() => {
  compileModules(code.path, ['trace/safetensors-write.ts'])
  writeFileSync(
    script,
    `import { writeSafetensors } from './trace/safetensors-write.js'
    const [path, first] = [process.argv[2], Number(process.argv[3])]
    for (let value = first; ; value++) {
      const data = new Uint32Array(${VALUES} + value % 7).fill(value)
      await writeSafetensors(path, { metadata: { value: String(value) }, tensors: { data: { dtype: 'U32', shape: [data.length], data } } })
      if (value === first) process.stdout.write('started')
    }`,
  )
})
afterAll(() => {
  code.remove()
  target.remove()
})

describe('writeSafetensors in a process that is killed', () => {
  it('leaves a complete file at every moment', async () => {
    await writeSafetensors(path, {
      metadata: { value: '0' },
      tensors: { data: { dtype: 'U32', shape: [VALUES], data: new Uint32Array(VALUES) } },
    })
    const seen = new Set<number>()
    let looks = 0
    for (let kill = 0; kill < KILLS; kill++) {
      const child = spawn(process.execPath, [script, path, String(1 + kill * 1_000_000)], {
        stdio: ['ignore', 'pipe', 'inherit'],
      })
      try {
        await Promise.race([
          once(child.stdout, 'data'),
          once(child, 'exit').then(() => Promise.reject(new Error('the writer exited by itself'))),
        ])
        const until = performance.now() + 5 + ((kill * 37) % 50) // milliseconds
        while (performance.now() < until) {
          seen.add(await wholeValue())
          looks++
        }
      } finally {
        await killed(child)
      }
      seen.add(await wholeValue())
    }
    expect(looks).toBeGreaterThanOrEqual(KILLS)
    expect(seen.size).toBeGreaterThanOrEqual(KILLS)
    // A killed writer leaves a separate file that is never read.
    expect(readdirSync(target.path).filter(name => !/^\.eldr-[0-9a-f]{16}\.tmp$/.test(name))).toEqual([
      'value.safetensors',
    ])
  })
})

/** The value in the file, after checking that it is the only one and that nothing is missing. */
async function wholeValue(): Promise<number> {
  const bytes = readFileSync(path)
  expect(bytes.length).toBe(
    8 + Number(bytes.readBigUInt64LE()) + 4 * (VALUES + (bytes.readUInt32LE(bytes.length - 4) % 7)),
  )
  return withSafetensors(path, async file => {
    const value = Number(file.metadata['value'])
    const data = await file.readAs('data', 'U32')
    expect(data.length).toBe(VALUES + (value % 7))
    expect(data.every(x => x === value)).toBe(true)
    return value
  })
}

async function killed(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null) return
  const exit = once(child, 'exit')
  child.kill('SIGKILL')
  await exit
}
