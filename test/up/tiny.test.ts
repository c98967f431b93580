/** `eldr up --backend tiny`: a cluster whose workers compute a model, with texts that do not depend on where they were decoded. */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { afterAll, describe, expect, it } from 'vitest'
import { temporaryFolder } from '../trace-support.ts'
import { PROGRAM } from '../worker/processes.ts'
import { allGone, killUps, UpProcess, type View } from './up-process.ts'

const folder = temporaryFolder()
afterAll(() => {
  killUps()
  folder.remove()
})

const PROMPTS = ['import os\n\ndef read', 'The plaintiff', 'Let $f$ be', 'Diabetes is', 'Die Regelung', '我们的']

describe('eldr up --backend tiny', () => {
  it('routes by what the gate chose, and every policy gives the same texts', async () => {
    const up = new UpProcess(folder.path, 'up', '--json', '--port', '0', '--prefill', '1', '--decode', '2', '--backend', 'tiny', '--pace', 'real') // prettier-ignore
    const { url, pids } = await up.event<{ event: string; url: string; pids: Record<string, number> }>('ready')
    const textsUnder = async (policy: string) => {
      expect((await fetch(`${url}/eldr/policy`, { method: 'PUT', body: JSON.stringify({ policy }) })).status).toBe(200)
      return Promise.all(
        PROMPTS.map(async (prompt, seed) => {
          const body = { model: 'tiny6', prompt, seed, max_tokens: 24, ignore_eos: true, temperature: seed % 2 }
          const answer = await fetch(`${url}/v1/completions`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }) // prettier-ignore
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

  it('refuses the load of a trace, which has no text', async () => {
    const run = promisify(execFile)(process.execPath, [PROGRAM, 'up', '--backend', 'tiny', '--load', '5', '--port', '0'], { cwd: folder.path }) // prettier-ignore
    await expect(run).rejects.toMatchObject({ code: 2, stderr: expect.stringContaining('eldr bench') as string })
  })
})
