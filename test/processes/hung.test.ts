/** Processes of a gateway that hang without ending are found, killed and replaced; a machine that slept is no reason for that. */
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
const start = async () => void (cluster = await startProcessCluster({ decodeOptions: { gapMs: 20 } }))
/** Longer than it takes to find one that hangs. */
const LONG = 400

describe('an owner that hangs', () => {
  it('is replaced: streams go on, and requests that waited for it are served or told to come back', async () => {
    await start()
    const streams = await Promise.all(Array.from({ length: 6 }, () => ask({ max_tokens: LONG })))
    const pid = cluster.pidOf('owner')
    process.kill(pid, 'SIGSTOP')
    const waits = Promise.all(Array.from({ length: 6 }, () => ask()))
    const [, late] = await Promise.all([cluster.replaced('owner', pid), waits])
    expect(runs(pid)).toBe(false)
    expect(cluster.process.said()).toContain('a process does not answer')
    for (const response of late) {
      const text = await response.text()
      expect(response.status === 200 ? text.includes('[DONE]') : text.includes('ELDR_OWNER_AWAY')).toBe(true)
    }
    for (const response of streams) expect((await eventsOf(response)).at(-1)).toBe('[DONE]')
    await cluster.idle()
    expect(await whole()).toBe('[DONE]')
    await cluster.idle()
  })
})

describe('a relay that hangs', () => {
  it('is replaced, its load is given back, and what it had not taken is for another', async () => {
    await start()
    const streams = await Promise.all(Array.from({ length: 8 }, () => ask({ max_tokens: LONG })))
    const pid = cluster.pidOf('relay-1')
    process.kill(pid, 'SIGSTOP')
    // Half of them are handed to the one that hangs, which has not even accepted them.
    const meanwhile = await Promise.all(Array.from({ length: 10 }, () => whole()))
    expect(meanwhile).toEqual(Array.from({ length: 10 }, () => '[DONE]'))
    await cluster.replaced('relay-1', pid)
    expect(runs(pid)).toBe(false)
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
  it('finds all processes as they were', async () => {
    await start()
    const pids = NAMES.map(name => cluster.pidOf(name))
    const all = [...pids, cluster.process.child.pid!]
    const stream = await ask({ max_tokens: 20 })
    for (const pid of all) process.kill(pid, 'SIGSTOP')
    await new Promise(resolve => setTimeout(resolve, 7_000)) // longer than one may be silent; nobody is awake to say when it is over
    for (const pid of all.toReversed()) process.kill(pid, 'SIGCONT')
    expect((await eventsOf(stream)).at(-1)).toBe('[DONE]')
    await polled(
      () => whole(),
      end => end === '[DONE]',
      'an answer',
    )
    // The supervisor has looked again, more than once, by the time that a new connection has gone through all of them.
    for (let n = 0; n < 4; n++) expect(await whole({ max_tokens: 25 })).toBe('[DONE]')
    expect(NAMES.map(name => cluster.pidOf(name))).toEqual(pids)
    expect(cluster.process.said()).not.toContain('a process does not answer')
  })
})
