/** The network itself: frames follow its rules. The other suites rely on this. */
import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Agent } from './agent.ts'
import { Network } from './network.ts'
import { asRoot } from './root.ts'
import { NO_NAMESPACES } from './suite.ts'

const SERVER =
  "require('node:http').createServer((_, answer) => answer.end('x'.repeat(200_000))).listen(80, () => console.log('up'))"

describe.skipIf(NO_NAMESPACES)('the network of namespaces', () => {
  let network: Network<'near' | 'far'>
  let agent: Agent
  const stale = `eldr${deadPid()}n0-stale`
  beforeAll(async () => {
    asRoot('ip', 'netns', 'add', stale)
    network = await Network.start(['near', 'far'])
    await once(network.spawn('far', [process.execPath, '-e', SERVER]).stdout!, 'data')
    agent = await Agent.start(network, 'near')
  })
  afterAll(() => network?.close())
  // A new connection each time, and so at least two round trips.
  const ask = (timeoutMs = 10_000) =>
    agent.ask(`http://${network.address('far')}/`, { headers: { connection: 'close' }, timeoutMs })

  it('removes the namespaces of dead processes, and no others', () => {
    const names = asRoot('ip', 'netns', 'list')
    expect(names).not.toContain(stale)
    expect(names).toContain(`eldr${process.pid}n`)
  })

  it('delays frames in order', async () => {
    await ask() // resolves addresses
    const cleanMs = (await ask()).tookMs
    await network.both('near', 'far', { delayMs: 60, jitterMs: 20 })
    const { tookMs, text } = await ask()
    await network.heal()
    expect(text.length).toBe(200_000)
    expect(tookMs).toBeGreaterThan(4 * 40)
    expect(tookMs).toBeGreaterThan(cleanMs)
    expect((await network.counts('near', 'far')).lost).toBe(0)
  })

  it('loses a share of the frames', async () => {
    const before = await network.counts('far', 'near')
    await network.rule('far', 'near', { loss: 0.1 })
    for (let n = 0; n < 3; n++) expect((await ask()).text.length).toBe(200_000)
    await network.heal()
    const { passed, lost } = await network.counts('far', 'near')
    const share = (lost - before.lost) / (lost - before.lost + passed - before.passed)
    expect(share).toBeGreaterThan(0.03)
    expect(share).toBeLessThan(0.2)
  })

  it.each([
    ['near', 'far'],
    ['far', 'near'],
  ] as const)('cuts only from %s to %s', async (from, to) => {
    const [there, back] = [await network.counts(from, to), await network.counts(to, from)]
    await network.rule(from, to, { cut: true })
    await expect(ask(700)).rejects.toThrow(/./)
    expect((await network.counts(from, to)).cut).toBeGreaterThan(there.cut)
    expect((await network.counts(to, from)).cut).toBe(back.cut)
    await network.heal()
    expect((await ask()).status).toBe(200)
  })

  it('reports an invalid rule', async () => {
    await expect(network.rule('near', 'far', { loss: 2 })).rejects.toThrow('a share is from 0 to 1')
    await expect(network.rule('near', 'moon' as 'far', {})).rejects.toThrow('no such path')
    expect((await ask()).status).toBe(200)
  })
})

function deadPid(): number {
  return spawnSync('true').pid
}
