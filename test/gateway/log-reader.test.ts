/** A log collector may stop reading. The gateway must continue. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'
import { startFakeWorker } from '../fake-worker/index.ts'
import { eventually } from './watching.ts'
import { freePort } from '../free-port.ts'

const MAIN = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url))

it('a gateway whose log is not read serves requests and stops on SIGTERM', async () => {
  const prefill = await startFakeWorker({ role: 'prefill' })
  const decode = await startFakeWorker({ role: 'decode', prefills: [prefill] })
  const port = await freePort()
  const flags = [
    '--prefill',
    prefill.url,
    '--decode',
    decode.url,
    '--policy',
    'jsq',
    '--port',
    String(port),
    '--json-log',
  ]
  const gateway = spawn(process.execPath, [MAIN, 'serve', ...flags], { stdio: ['ignore', 'ignore', 'pipe'] })
  gateway.stderr.pause()
  try {
    const url = `http://127.0.0.1:${port}`
    await eventually(async () => (await fetch(`${url}/ready`).catch(() => undefined))?.status === 200)
    // More lines than the buffers of a pipe and a socket hold.
    const reqId = 'r'.repeat(128)
    const ask = () =>
      fetch(`${url}/v1/completions`, {
        method: 'POST',
        headers: { 'x-request-id': reqId },
        body: '{"prompt":"a","max_tokens":1}',
      })
    for (let n = 0; n < 120; n++) {
      const answers = await Promise.all(
        Array.from({ length: 25 }, async () => {
          const answer = await ask()
          await answer.arrayBuffer()
          return answer.status
        }),
      )
      expect(new Set(answers)).toEqual(new Set([200]))
    }
    const exited = once(gateway, 'exit')
    gateway.kill('SIGTERM')
    expect(await exited).toEqual([0, null])
  } finally {
    gateway.kill('SIGKILL')
    await Promise.all([prefill.close(), decode.close()])
  }
})
