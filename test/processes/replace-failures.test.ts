/** `eldr serve --replace`, and new processes that fail: the old one continues to serve and says why. */
import { afterEach, describe, expect, it } from 'vitest'
import { eventsOf } from '../gateway/cluster.ts'
import { ended, type ProcessCluster, startProcessCluster } from '../gateway/process-cluster.ts'
import { eldrReplace } from '../gateway/replace-command.ts'
import { killAll, polled } from '../worker/processes.ts'

let cluster: ProcessCluster | undefined
afterEach(async () => {
  await cluster?.stop()
  cluster = undefined
  await killAll()
})

const start = async (server: Record<string, unknown> = {}) =>
  (cluster = await startProcessCluster({ processes: 1, config: { server } }))
const CLOSE = { headers: { connection: 'close' } }
async function serves({ post }: ProcessCluster): Promise<boolean> {
  const response = await post('/v1/completions', { prompt: 'Once', stream: true, max_tokens: 3 }, CLOSE)
  return (await eventsOf(response)).at(-1) === '[DONE]'
}
const successors = ({ process: { said } }: ProcessCluster) =>
  [...said().matchAll(/"pid":(\d+),"msg":"starting a process/g)].map(([, pid]) => Number(pid))
const started = (here: ProcessCluster) =>
  polled(
    async () => (await new Promise(resolve => setTimeout(resolve, 5)), successors(here)),
    pids => pids.length > 0,
    'a successor',
  )

describe('eldr serve --replace', () => {
  it('returns when the new process serves, which has its command line and environment', async () => {
    const here = await start()
    const { code, stdout } = await eldrReplace(here)
    expect([code, stdout]).toEqual([
      0,
      expect.stringMatching(/^replaced: process \d+ \(eldr [\d.]+\) serves\n$/),
    ])
    expect(await serves(here)).toBe(true)
    // SIGUSR2 to the first process reaches the one that serves.
    here.process.child.kill('SIGUSR2')
    await polled(
      () => here.get<{ level: string }>('/eldr/log-level'),
      ({ level }) => level === 'debug',
      'debug',
    )
  })

  it('exits with 1 if there is no gateway at the address', async () => {
    const here = await start()
    await here.process.stop()
    const { code, stderr } = await eldrReplace(here)
    expect([code, stderr]).toEqual([1, expect.stringContaining('ELDR_REPLACE_NONE')])
  })

  it('exits with 2 for an invalid configuration, before anything is started', async () => {
    const here = await start()
    here.configure({ routing: { policy: 'no such policy' } })
    const { code, stderr } = await eldrReplace(here)
    expect([code, stderr]).toEqual([2, expect.stringContaining('ELDR_CONFIG_INVALID')])
    expect(successors(here)).toEqual([])
    expect(await serves(here)).toBe(true)
  })
})

describe('a new process', () => {
  it('that crashes at its start does not stop the old one', async () => {
    const here = await start()
    const { code, stderr } = await eldrReplace(here, 'crash')
    expect([code, stderr]).toEqual([1, expect.stringContaining('exit code 7')])
    expect(stderr).toContain('ELDR_REPLACE_FAILED')
    expect(await serves(here)).toBe(true)
    expect((await eldrReplace(here)).code).toBe(0)
  })

  it('whose port for metrics is taken does not stop the old one, which keeps its own', async () => {
    const here = await start()
    here.configure({
      server: { port: 0, processes: 1, metricsPort: Number(new URL(here.decodes[0]!.url).port) },
    })
    const { code, stderr } = await eldrReplace(here)
    expect([code, stderr]).toEqual([1, expect.stringContaining('ELDR_PORT_TAKEN')])
    expect(await serves(here)).toBe(true)
    expect(await here.inflight()).toBe(0)
  })

  it('that hangs is killed at the limit; meanwhile a second replacement is refused', async () => {
    const here = await start({ replaceReadyMs: 10_000 })
    const first = eldrReplace(here, 'hang')
    const [pid] = await started(here)
    const second = await here.post('/eldr/replace', {}, CLOSE)
    expect([second.status, second.headers.get('x-eldr-error-code')]).toEqual([503, 'ELDR_REPLACING'])
    expect(await serves(here)).toBe(true)
    expect(await first).toMatchObject({ code: 1, stderr: expect.stringContaining('not serve after 10 s') })
    await ended([pid!])
    expect(await serves(here)).toBe(true)
  })

  it('that is starting is killed when the gateway is stopped', async () => {
    const here = await start()
    const replaced = eldrReplace(here, 'hang')
    const [pid] = await started(here)
    expect(await here.process.stop()).toBe(0)
    expect(await replaced).toMatchObject({ code: 1 })
    await ended([pid!])
  })

  it('that dies while it serves ends the gateway, so that a service manager restarts it', async () => {
    const here = await start()
    expect((await eldrReplace(here)).code).toBe(0)
    const exited = new Promise(resolve => here.process.child.once('exit', resolve))
    process.kill(successors(here)[0]!, 'SIGKILL')
    expect(await exited).toBe(1)
    cluster = undefined
    await Promise.all([...here.prefills, ...here.decodes].map(worker => worker.close()))
  })
})
