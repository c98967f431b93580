import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, describe, expect, it } from 'vitest'
import { shipped } from '../../test/data.ts'
import { temporaryFolder } from '../../test/trace-support.ts'
import { openSafetensors } from '../trace/safetensors-file.ts'
import { type TensorToWrite, writeSafetensors } from '../trace/safetensors-write.ts'
import { capturedPrompts } from './captured-prompts.ts'
import { readTraceRows } from './synthetic-sources.ts'
import { bodyOf, seedOf } from './request-source.ts'

const HELD_OUT = fileURLToPath(new URL('../../data/prompts/held-out.jsonl', import.meta.url))
const TRACE = shipped('tiny6-prompts.evaluation')
const folder = temporaryFolder()
afterAll(() => folder.remove())

/** The shipped trace with other metadata. */
async function noted(name: string, changes: Record<string, string | undefined>): Promise<string> {
  const file = await openSafetensors(TRACE)
  const tensors: Record<string, TensorToWrite> = {}
  for (const tensor of file.tensors.keys())
    tensors[tensor] = { ...file.info(tensor), data: await file.read(tensor) } as TensorToWrite
  const metadata = Object.fromEntries(
    Object.entries({ ...file.metadata, ...changes }).filter(([, value]) => value !== undefined),
  ) as Record<string, string>
  const path = join(folder.path, `${name}.safetensors`)
  await writeSafetensors(path, { metadata, tensors })
  await file.close()
  return path
}

describe('capturedPrompts', () => {
  it('sends the prompts as during capture: text, length, temperature and seed of each row', async () => {
    const lines = readFileSync(HELD_OUT, 'utf8')
      .trimEnd()
      .split('\n')
      .map(line => (JSON.parse(line) as { prompt: string }).prompt)
    const sourceOf = await capturedPrompts(HELD_OUT, await readTraceRows(TRACE))
    const { request } = sourceOf(Int32Array.of(7, 0, 147))
    for (const [index, row] of [7, 0, 147, 7].entries()) {
      const body = JSON.parse(
        bodyOf(request(index), { api: 'completions', model: 'tiny6', ignoreEos: true }),
      ) as object
      expect(body).toMatchObject({
        model: 'tiny6',
        prompt: lines[row],
        max_tokens: 129,
        temperature: 0.8,
        seed: seedOf(0, row),
        ignore_eos: true,
        stream: true,
      })
      expect(body).not.toHaveProperty('eldr_row')
    }
  })

  it('rejects other prompts, fewer prompts, and a trace without capture options', async () => {
    const rows = await readTraceRows(TRACE)
    const load = (prompts: string, trace: string) => capturedPrompts(prompts, { ...rows, file: trace })
    const other = join(folder.path, 'other.jsonl')
    writeFileSync(other, '{"prompt": "a"}\n')
    await expect(load(other, TRACE)).rejects.toMatchObject({
      code: 'ELDR_TRACE_OF_OTHER_PROMPTS',
      message: expect.stringContaining('sha256') as string,
    })
    await expect(load(join(folder.path, 'none.jsonl'), TRACE)).rejects.toMatchObject({
      code: 'ELDR_FILE_UNREADABLE',
    })
    await expect(load(HELD_OUT, await noted('plain', { prompts_sha256: undefined }))).rejects.toMatchObject({
      message: expect.stringContaining('a trace of prompts with none') as string,
    })
    for (const options of [undefined, 'not JSON', '{}'])
      await expect(load(HELD_OUT, await noted('silent', { capture_options: options }))).rejects.toMatchObject(
        { message: expect.stringContaining('without the options of its capture') as string },
      )
    const short = { ...rows, decodeSteps: Array.from(rows.decodeSteps).slice(1) }
    await expect(capturedPrompts(HELD_OUT, short)).rejects.toMatchObject({
      message: expect.stringContaining('148 prompts and 147 requests') as string,
    })
  })
})
