/** Tests `eldr up` with real processes: start, output, restarts and cleanup. */
import { execFile } from 'node:child_process'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { promisify } from 'node:util'
import { afterAll, describe, expect, it } from 'vitest'
import { temporaryFolder } from '../trace-support.ts'
import { PROGRAM } from '../worker/processes.ts'
import { allGone, killUps, listens, UpProcess, type View } from './up-process.ts'

const folder = temporaryFolder()
afterAll(() => {
  killUps()
  folder.remove()
})

const SMALL = ['up', '--json', '--port', '0', '--prefill', '1', '--decode', '2']
const up = (...more: string[]) => new UpProcess(folder.path, ...SMALL, ...more)
const readyOf = (process: UpProcess) =>
  process.event<{
    event: string
    url: string
    dashboard: string
    curl: string
    policy: string
    pids: Record<string, number>
  }>('ready')
const allReady = ({ workers }: View) => workers.every(({ state }) => state === 'ready')

describe('eldr up', () => {
  it('starts a cluster with a working curl line, follows policy changes, survives a crash, and leaves nothing behind', async () => {
    const process = up('--load', '60')
    const ready = await readyOf(process)
    expect(Object.keys(ready.pids)).toEqual(['gateway', 'prefill-0', 'decode-0', 'decode-1'])
    expect(ready.policy).toBe('union')
    expect(await (await fetch(ready.dashboard)).text()).toContain('<title>ELDR dashboard</title>')

    const { stdout } = await promisify(execFile)('sh', ['-c', ready.curl])
    expect(JSON.parse(stdout)).toMatchObject({
      object: 'text_completion',
      choices: [{ text: expect.stringMatching(/\w/), finish_reason: 'length' }],
      usage: { completion_tokens: 24 },
    })

    const working = await process.event<View>(
      'view',
      ({ workers, policies }) => policies.length > 0 && workers.slice(1).every(({ step }) => step !== null),
    )
    expect(working.workers.map(({ name, state }) => [name, state])).toEqual([
      ['prefill-0', 'ready'],
      ['decode-0', 'ready'],
      ['decode-1', 'ready'],
    ])
    expect(working.workers[1]!.step).toMatchObject({
      batch: expect.any(Number),
      active: expect.any(Number),
      tpotMs: expect.any(Number),
    })

    const change = await fetch(`${ready.url}/eldr/policy`, {
      method: 'PUT',
      body: '{"policy": "round_robin"}',
    })
    expect(change.status).toBe(200)
    const changed = await process.nextView(({ policies }) => policies.length === 2)
    expect(changed).toMatchObject({
      policy: 'round_robin',
      policies: [{ policy: 'union' }, { policy: 'round_robin' }],
    })

    const victim = changed.workers[2]!
    globalThis.process.kill(victim.pid!, 'SIGKILL')
    expect(await process.event('ended')).toMatchObject({ name: 'decode-1', how: 'SIGKILL' })
    expect(await process.event('restarted')).toMatchObject({ name: 'decode-1' })
    // The gateway uses it again: it decodes.
    const back = await process.nextView(view => allReady(view) && view.workers[2]!.step !== null)
    expect(back.workers[2]).toMatchObject({ restarts: 1 })
    expect(back.workers[2]!.pid).not.toBe(victim.pid)

    process.child.kill('SIGINT')
    expect(await process.exited).toBe(0)
    expect(await process.event('stopped')).toBeDefined()
    expect(process.said).toBe('')
    await allGone([...Object.values(ready.pids), back.workers[2]!.pid!])
    expect(await listens(ready.url)).toBe(false)
  })

  it('prints the client URL in plain lines without a terminal', async () => {
    const { stdout } = await new Promise<{ stdout: string }>(resolve => {
      const child = execFile(
        process.execPath,
        [PROGRAM, 'up', '--port', '0', '--prefill', '1', '--decode', '1'],
        { cwd: folder.path },
        (_, stdout) => resolve({ stdout }),
      )
      let said = ''
      child.stdout!.on('data', (chunk: string) => {
        said += chunk
        if (/0 s · union/.test(said)) child.kill('SIGTERM')
      })
    })
    expect(stdout).toMatch(/1P1D on this machine: lab16.*h200-first/)
    expect(stdout).toMatch(/\n {2}curl http:\/\/127\.0\.0\.1:\d+\/v1\/completions -H .* -d '.*'\n/)
    expect(stdout).toMatch(/Dashboard: http:\/\/127\.0\.0\.1:\d+\/dashboard\n/)
    expect(stdout).toMatch(/curl -X PUT .*\/eldr\/policy -d '\{"policy": "round_robin"\}'/)
    expect(stdout).toMatch(/SIGTERM: stopping…\nstopped; all processes have ended\.\n$/)
    expect(stdout).not.toContain('\u001b')
  })

  it('restarts its gateway too, takes all processes down when it is killed, and can be stopped while it starts', async () => {
    const killed = up()
    const { url, pids } = await readyOf(killed)
    process.kill(pids['gateway']!, 'SIGKILL')
    const { pid } = await killed.event<{ event: string; name: string; pid: number }>(
      'restarted',
      ({ name }) => name === 'gateway',
    )
    expect((await fetch(`${url}/v1/models`)).status).toBe(200)
    killed.child.kill('SIGKILL')
    await killed.exited
    await allGone([...Object.values(pids), pid])
    expect(await listens(url)).toBe(false)

    const early = up()
    await early.event('starting')
    early.child.kill('SIGTERM')
    expect(await early.exited).toBe(0)
    expect(await early.event('stopped')).toBeDefined()
  })

  it('reports a port in use and what to do', async () => {
    const holder = createServer()
    await new Promise<void>(resolve => holder.listen(0, '127.0.0.1', resolve))
    const { port } = holder.address() as AddressInfo
    const { status, stderr } = await ran('up', '--port', String(port))
    expect(stderr.replaceAll(/\s+/g, ' ')).toMatch(
      new RegExp(
        `127\\.0\\.0\\.1:${port} \\(EADDRINUSE\\).*lsof -i :${port}.*--port \\d+.*--port 0.*ELDR_PORT_TAKEN`,
      ),
    )
    expect(status).toBe(1)
    await new Promise(resolve => holder.close(resolve))
  })

  it.each([
    [['up', '--trace', 'nowhere.safetensors'], 1, /nowhere\.safetensors.*ELDR_FILE_UNREADABLE/],
    [['up', '--profile', 'nothing'], 1, /no profile.*h200-first/],
    [['up', '--policy', 'best'], 2, /random, round_robin/],
    [
      ['up', '--backend', 'tiny', '--pace', 'real', '--speed', '2'],
      2,
      /--speed with --pace real.*ELDR_USAGE/,
    ],
    [['up', '--decode', '0'], 2, /whole number from 1/],
    [
      ['up', '--artifact', 'nowhere.safetensors', '--port', '0', '--prefill', '1', '--decode', '1'],
      1,
      /gateway: .*nowhere\.safetensors[^]*ELDR_CLUSTER_FAILED/,
    ],
  ])('reports invalid arguments and files once: %j', async (args, code, message) => {
    const { status, stderr } = await ran(...args)
    expect(stderr).toMatch(message)
    expect(status).toBe(code)
  })
})

function ran(...args: string[]): Promise<{ status: number; stderr: string }> {
  return new Promise(resolve => {
    execFile(process.execPath, [PROGRAM, ...args], { cwd: folder.path }, (error, _, stderr) =>
      resolve({ status: error === null ? 0 : Number(error.code), stderr }),
    )
  })
}
