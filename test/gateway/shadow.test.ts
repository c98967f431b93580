/** Shadow policies beside real requests: in one process, and in the owner of several. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { temporaryFolder } from '../trace-support.ts'
import { call, smallArtifact } from './admin-support.ts'
import { startCluster } from './cluster.ts'
import { startProcessCluster } from './process-cluster.ts'

const folder = temporaryFolder()
let artifact = ''
beforeAll(async () => {
  artifact = (await smallArtifact(folder.path, 2)).path
})
afterAll(() => folder.remove())

interface Running {
  readonly url: string
  post(path: string, body: unknown): Promise<Response>
  idle(): Promise<void>
  stop(): Promise<void>
}
let cluster: Running
afterEach(() => cluster.stop())

async function send(count: number): Promise<void> {
  const responses = Array.from({ length: count }, (_, n) =>
    cluster.post('/v1/completions', { prompt: `a b c d e f g ${n}`, max_tokens: 3 }),
  )
  for (const response of await Promise.all(responses)) {
    expect(response.status).toBe(200)
    await response.text()
  }
}
const shadow = async () => (await call(cluster, 'GET', '/eldr/shadow')).json
/** Shadow policies that have used up their time rest when routing changes: sends until they decide again. */
async function untilDeciding(): Promise<void> {
  do await send(1)
  while ((await shadow()).shadows.some(({ decisions }: { decisions: number }) => decisions === 0))
}
/** Decisions of each shadow policy on so many requests. */
async function decisionsOn(count: number): Promise<number[]> {
  const decisions = async () =>
    (await shadow()).shadows.map((row: { decisions: number }) => row.decisions) as number[]
  const before = await decisions()
  await send(count)
  return (await decisions()).map((after, n) => after - before[n]!)
}
const metric = async (name: string) =>
  (await (await fetch(`${cluster.url}/metrics`)).text()).split('\n').filter(line => line.startsWith(name))

describe.each([
  ['one process', startCluster],
  ['several processes', startProcessCluster],
])('GET /eldr/shadow of %s', (_, start) => {
  it('compares each shadow policy with the policy in force, and starts again when that changes', async () => {
    cluster = await start({
      config: { routing: { policy: 'jsq', shadow: ['jsq', 'union', 'eldr'], artifact } },
    })
    await send(20)
    const { inForce, sinceMs, shadows } = await shadow()
    expect(inForce).toBe('jsq')
    expect(sinceMs).toBeLessThanOrEqual(Date.now())
    expect(shadows.map(({ policy, state }: Record<string, unknown>) => [policy, state])).toEqual([
      ['jsq', 'deciding'],
      ['union', 'deciding'],
      ['eldr', 'deciding'],
    ])
    for (const { decisions, judged, experts, costUs } of shadows) {
      expect([decisions, judged]).toEqual([20, 20])
      expect(experts.inForce).toBeGreaterThanOrEqual(2) // top-2
      expect(costUs.inForce).toBeGreaterThan(0)
    }
    expect(shadows[0].agreed).toBe(20)
    expect(shadows[0].experts.shadow).toBe(shadows[0].experts.inForce)
    expect(await metric('eldr_shadow_decisions_total{policy="jsq"')).toEqual([
      'eldr_shadow_decisions_total{policy="jsq",in_force="jsq",agrees="yes"} 20',
      'eldr_shadow_decisions_total{policy="jsq",in_force="jsq",agrees="no"} 0',
    ])
    expect(await metric('eldr_shadow_errors_total{policy="eldr"')).toEqual([
      'eldr_shadow_errors_total{policy="eldr"} 0',
    ])

    await call(cluster, 'PUT', '/eldr/policy', { policy: 'eldr' })
    expect((await shadow()).shadows[0].decisions).toBe(0)
    await untilDeciding()
    expect(await decisionsOn(10)).toEqual([10, 10, 10])
    expect(await shadow()).toMatchObject({ inForce: 'eldr', shadows: [{}, {}, { policy: 'eldr' }] })
    await call(cluster, 'POST', '/eldr/artifact', { path: artifact })
    expect((await shadow()).shadows[0].decisions).toBe(0)
    await untilDeciding()
    expect(await decisionsOn(5)).toEqual([5, 5, 5])
    expect((await shadow()).shadows[1]).toMatchObject({ policy: 'union', state: 'deciding' })
    await cluster.idle()
  })

  it('is empty without shadow policies', async () => {
    cluster = await start({ config: { routing: { policy: 'jsq' } } })
    await send(2)
    expect((await shadow()).shadows).toEqual([])
    expect(await metric('eldr_shadow_decisions_total{')).toEqual([])
  })
})

describe('a gateway with shadow policies', () => {
  it('routes as without them, and waits for the shape of the model', async () => {
    cluster = await startCluster({ config: { routing: { policy: 'round_robin', shadow: ['union'] } } })
    expect((await shadow()).shadows).toMatchObject([{ policy: 'union', state: 'waiting' }])
    await send(9)
    const [row] = (await shadow()).shadows
    expect(row).toMatchObject({ policy: 'union', state: 'deciding', judged: row.decisions })
    const { decisions } = (await call(cluster, 'GET', '/eldr/decisions')).json
    expect(decisions.map(({ policy }: { policy: string }) => policy)).toEqual(Array(9).fill('round_robin'))
  })
})
