/** Processes that hang are detected, killed and replaced; a machine that slept is not taken for a hang. */
import { afterEach, describe, expect, it } from 'vitest'
import { killAll, polled } from '../worker/processes.ts'
import { eventsOf } from '../gateway/cluster.ts'
import { type ProcessCluster, runs, startProcessCluster } from '../gateway/process-cluster.ts'

let cluster: ProcessCluster
afterEach(async () => {
  await cluster.stop()
  await killAll()
})

const NAMES = ['owner', 'relay-1', 'relay-2']
const ask = (more: object = {}) =>
  cluster.post(
    '/v1/completions',
    { prompt: 'Once upon a time', stream: true, max_tokens: 4, ...more },
    { headers: { connection: 'close' } },
  )
const whole = async (more: object = {}) => (await eventsOf(await ask(more))).at(-1)
const start = async () => void (cluster = await startProcessCluster())
/**
 * Streams that have begun and stop after two tokens until they are released. Requests after them are not
 * held.
 */
async function heldStreams(count: number) {
  const { holdNoMore, release } = cluster.holdStreams()
  const streams = await Promise.all(Array.from({ length: count }, () => ask({ max_tokens: 6 })))
  holdNoMore()
  return { streams, release }
}

describe('an owner that hangs', () => {
  it('is replaced: streams continue, and requests that waited for it are served or get ELDR_OWNER_AWAY', async () => {
    await start()
    const { streams, release } = await heldStreams(6)
    const pid = cluster.pidOf('owner')
    process.kill(pid, 'SIGSTOP')
    const waits = Promise.all(Array.from({ length: 6 }, () => ask()))
    const [, late] = await Promise.all([cluster.replaced('owner', pid), waits])
    expect(runs(pid)).toBe(false)
    expect(cluster.process.said()).toContain('"silentMs"')
    for (const response of late) {
      const text = await response.text()
      expect(response.status === 200 ? text.includes('[DONE]') : text.includes('ELDR_OWNER_AWAY')).toBe(true)
    }
    release()
    for (const response of streams) expect((await eventsOf(response)).at(-1)).toBe('[DONE]')
    await cluster.idle()
    expect(await whole()).toBe('[DONE]')
    await cluster.idle()
  })
})

describe('a relay that hangs', () => {
  it('is replaced, its load is released, and connections it had not accepted go to another relay', async () => {
    await start()
    const { streams, release } = await heldStreams(8)
    const pid = cluster.pidOf('relay-1')
    process.kill(pid, 'SIGSTOP')
    // Half of these are handed to the relay that hangs, which does not accept them.
    const meanwhile = await Promise.all(Array.from({ length: 10 }, () => whole()))
    expect(meanwhile).toEqual(Array.from({ length: 10 }, () => '[DONE]'))
    await cluster.replaced('relay-1', pid)
    expect(runs(pid)).toBe(false)
    release()
    const ends = await Promise.all(
      streams.map(response =>
        eventsOf(response).then(
          events => events.at(-1),
          () => 'broke',
        ),
      ),
    )
    expect(new Set(ends)).toEqual(new Set(['[DONE]', 'broke']))
    await cluster.idle()
  })
})

describe('a machine that slept', () => {
  it('keeps all its processes', async () => {
    await start()
    const pids = NAMES.map(name => cluster.pidOf(name))
    const all = [...pids, cluster.process.child.pid!]
    const { streams, release } = await heldStreams(1)
    for (const pid of all) process.kill(pid, 'SIGSTOP')
    // Nothing is awaited here: the sleep is the case. It is longer than a process may be silent.
    await new Promise(resolve => setTimeout(resolve, 7_000))
    for (const pid of all.toReversed()) process.kill(pid, 'SIGCONT')
    release()
    expect((await eventsOf(streams[0]!)).at(-1)).toBe('[DONE]')
    await polled(
      () => whole(),
      end => end === '[DONE]',
      'a response',
    )
    expect(NAMES.map(name => cluster.pidOf(name))).toEqual(pids)
    // A relay that hangs now is replaced: by then the supervisor has checked the others several times too.
    const [owner, relay, hung] = pids as [number, number, number]
    process.kill(hung, 'SIGSTOP')
    await cluster.replaced('relay-2', hung)
    expect([cluster.pidOf('owner'), cluster.pidOf('relay-1')]).toEqual([owner, relay])
    const silent = cluster.process
      .said()
      .split('\n')
      .filter(line => line.includes('"silentMs"'))
    expect(silent.map(line => (JSON.parse(line) as { pid: number; process: string }).process)).toEqual([
      'relay-2',
    ])
    expect(await whole()).toBe('[DONE]')
  })
})
