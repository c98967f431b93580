/**
 * `eldr up --backend tiny`: a cluster whose workers compute a model, with texts that do not depend on the
 * decode worker.
 */
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, describe, expect, it } from 'vitest'
import { shipped } from '../data.ts'
import { writeSmallModel } from '../tiny-support.ts'
import { temporaryFolder } from '../trace-support.ts'
import { PROGRAM } from '../worker/processes.ts'
import { allGone, killUps, UpProcess, type View } from '../up/up-process.ts'

const folder = temporaryFolder()
afterAll(() => {
  killUps()
  folder.remove()
})

const PROMPTS_FILE = fileURLToPath(new URL('../../data/prompts/calibration.jsonl', import.meta.url))
const PROMPTS = [
  'import os\n\ndef read',
  'The plaintiff',
  'Let $f$ be',
  'Diabetes is',
  'Die Regelung',
  '我们的',
]

describe('eldr up --backend tiny', () => {
  it('routes by the experts of the gate, and every policy gives the same texts', async () => {
    const up = new UpProcess(
      folder.path,
      'up',
      '--json',
      '--port',
      '0',
      '--prefill',
      '1',
      '--decode',
      '2',
      '--backend',
      'tiny',
      '--pace',
      'real',
    )
    const { url, pids } = await up.event<{ event: string; url: string; pids: Record<string, number> }>(
      'ready',
    )
    const textsUnder = async (policy: string) => {
      expect(
        (await fetch(`${url}/eldr/policy`, { method: 'PUT', body: JSON.stringify({ policy }) })).status,
      ).toBe(200)
      return Promise.all(
        PROMPTS.map(async (prompt, seed) => {
          const body = {
            model: 'tiny6',
            prompt,
            seed,
            max_tokens: 24,
            ignore_eos: true,
            temperature: seed % 2,
          }
          const answer = await fetch(`${url}/v1/completions`, {
            method: 'POST',
            headers: { 'content-type': 'application/json' },
            body: JSON.stringify(body),
          })
          return ((await answer.json()) as { choices: { text: string }[] }).choices[0]!.text
        }),
      )
    }
    const texts = await textsUnder('eldr')
    expect(new Set(texts).size).toBe(PROMPTS.length)
    for (const policy of ['round_robin', 'union']) expect(await textsUnder(policy)).toEqual(texts)
    const seen = await up.event<View>('view', ({ policies }) => policies.length > 0)
    expect(seen.workers.map(({ state }) => state)).toEqual(['ready', 'ready', 'ready'])
    up.child.kill('SIGINT')
    expect(await up.exited).toBe(0)
    expect(up.said).toBe('')
    await allGone(Object.values(pids))
  }, 90_000)

  it('sends itself the prompts from which its trace was captured, and no others', async () => {
    const up = new UpProcess(
      folder.path,
      'up',
      '--json',
      '--port',
      '0',
      '--prefill',
      '1',
      '--decode',
      '2',
      '--backend',
      'tiny',
      '--load',
      '10',
      '--speed',
      '0.2',
    )
    await up.event('ready')
    const { policies } = await up.event<View>('view', view => (view.policies[0]?.tokens ?? 0) > 200)
    expect(policies[0]).toMatchObject({
      policy: 'union',
      step: { active: expect.any(Number), mixedActive: expect.any(Number) },
    })
    expect(await up.nextView(() => true)).not.toHaveProperty('failure')
    up.child.kill('SIGINT')
    expect(await up.exited).toBe(0)
    expect(up.said).toBe('')
  }, 90_000)

  it.each<[string, (model: string) => string[], RegExp]>([
    [
      'a trace that was captured from other prompts',
      () => ['--load', '5', '--trace', shipped('tiny6-long-task.evaluation')],
      /captured from other prompts.*ELDR_TRACE_OF_OTHER_PROMPTS/s,
    ],
    ['other prompts', () => ['--load', '5', '--prompts', PROMPTS_FILE], /ELDR_TRACE_OF_OTHER_PROMPTS/],
    [
      'a model with another shape than its trace',
      model => ['--model', model],
      /2 layers × 32 experts, top 4.*tiny6-prompts.*6 layers × 64 experts, top 8.*ELDR_USAGE/s,
    ],
    ['no model at all', () => ['--model', 'nowhere'], /config.json.*ELDR_FILE_UNREADABLE/s],
  ])('refuses %s', async (_, flags, said) => {
    const model = await writeSmallModel(join(folder.path, 'small'))
    const run = promisify(execFile)(
      process.execPath,
      [PROGRAM, 'up', '--backend', 'tiny', '--port', '0', ...flags(model)],
      { cwd: folder.path },
    )
    const { code, stderr } = (await run.then(
      () => ({}),
      (error: object) => error,
    )) as { code: number; stderr: string }
    expect(stderr.replaceAll(/\s+/g, ' ')).toMatch(said)
    expect([1, 2]).toContain(code)
  })
})
