/**
 * The steps of docs/guides/tiny.md on a few prompts: a worker that computes a model, `eldr calibrate` on
 * calibration and on held-out prompts, `eldr fit`, `eldr simulate`. The capture equals what the model
 * computes, bit for bit, and so do the shipped traces.
 */
import { execFile } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Trace, withTrace } from '../../src/trace/trace.ts'
import { shipped } from '../data.ts'
import { temporaryFolder } from '../trace-support.ts'
import { killAll, PROGRAM, startWorkerProcess, type WorkerProcess } from '../worker/processes.ts'

const STEPS = 128
const folder = temporaryFolder()
const at = (name: string) => join(folder.path, name)
const prompts = (split: string) =>
  fileURLToPath(new URL(`../../data/prompts/${split}.jsonl`, import.meta.url))
const first = (split: string, count: number) => {
  const lines = readFileSync(prompts(split), 'utf8').split('\n').slice(0, count)
  writeFileSync(at(`${split}.jsonl`), `${lines.join('\n')}\n`)
  return at(`${split}.jsonl`)
}
const eldr = async (...args: string[]) =>
  (await promisify(execFile)(process.execPath, [PROGRAM, ...args], { maxBuffer: 1 << 26 })).stdout

let worker: WorkerProcess
beforeAll(async () => {
  worker = await startWorkerProcess('--backend', 'tiny', '--recent-half-life', '64')
})
afterAll(async () => {
  await killAll()
  folder.remove()
})

const [learnt, held, artifact] = [
  at('p.calibration.safetensors'),
  at('p.evaluation.safetensors'),
  at('p.artifact.safetensors'),
]
const calibrate = async (file: string, out: string, ...more: string[]) =>
  JSON.parse(
    await eldr(
      'calibrate',
      '--url',
      worker.url,
      '--prompts',
      file,
      '--out',
      out,
      '--temperature',
      '0.8',
      '--steps',
      String(STEPS),
      '--json',
      '--quiet',
      ...more,
    ),
  ) as { captured: object; files: object }

/** Rows of the two traces for the first few prompts. */
async function sameRows(
  made: string,
  whole: string,
  tensors: (trace: Trace, rows: number) => Promise<ArrayLike<number>[]>,
): Promise<void> {
  await withTrace(made, async a =>
    withTrace(whole, async b => {
      for (const [i, tensor] of (await tensors(a, a.requests)).entries())
        expect(tensor).toEqual((await tensors(b, a.requests))[i])
    }),
  )
}

describe('calibration of a worker with a model', () => {
  it('captures the experts of the shipped traces for the shipped prompts, and shows the gain of routing on held-out prompts', async () => {
    expect(await calibrate(first('calibration', 14), learnt)).toMatchObject({
      captured: { calibration: 14, evaluation: 0 },
      files: { calibration: learnt },
    })
    expect(await calibrate(first('held-out', 8), held, '--split', 'evaluation')).toMatchObject({
      captured: { calibration: 0, evaluation: 8 },
      files: { evaluation: held },
    })
    await sameRows(learnt, shipped('tiny6-prompts.calibration'), async (trace, rows) => [
      await trace.prefillCounts(0, rows),
      await trace.prefillRecent(0, rows),
      await trace.decodeCounts(0, rows),
    ])
    await sameRows(held, shipped('tiny6-prompts.evaluation'), async (trace, rows) => [
      await trace.prefillCounts(0, rows),
      await trace.decodeExpertIds(0, rows),
    ])
    expect(await worker.leftovers()).toEqual([])

    await eldr('fit', learnt, '--workers', '2', '--out', artifact, '--quiet')
    const simulate = [
      'simulate',
      '--trace',
      held,
      '--artifact',
      artifact,
      '--topology',
      '1P2D',
      '--rates',
      '18',
      '--requests',
      '200',
      '--seeds',
      '1',
      '--policies',
      'jsq,eldr',
      '--json',
      '--quiet',
    ]
    const { points } = JSON.parse(await eldr(...simulate)) as {
      points: { runs: { tpotMs: { p50: number } }[] }[]
    }
    expect(points.map(({ runs }) => runs[0]!.tpotMs.p50 > 0)).toEqual([true, true])
  }, 120_000)

  it('rejects --holdout for prompts that are already held out', async () => {
    const run = eldr(
      'calibrate',
      '--url',
      worker.url,
      '--prompts',
      at('held-out.jsonl'),
      '--out',
      at('x.safetensors'),
      '--split',
      'evaluation',
      '--holdout',
      '0.5',
    )
    await expect(run).rejects.toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/--holdout with --split evaluation/) as string,
    })
  })
})
