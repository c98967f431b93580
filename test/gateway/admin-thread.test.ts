import { execFile } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { writeArtifact } from '../../src/fit/artifact-write.ts'
import type { Artifact } from '../../src/fit/artifact.ts'
import { refit } from '../../src/fit/refit.ts'
import { fitFile, shipped } from '../data.ts'
import { temporaryFolder } from '../trace-support.ts'

const folder = temporaryFolder()
/** A thread starts from a file, and Node 20 does not run TypeScript. */
const dist = new URL('../../dist/', import.meta.url)
let artifact: Artifact
beforeAll(async () => {
  const fitted = await fitFile(shipped('lab16-task.calibration'), { workers: 16 })
  // A re-fit of about a second.
  artifact = { ...fitted.artifact, about: { ...fitted.artifact.about, restarts: 40 } }
  await writeArtifact(join(folder.path, 'artifact.safetensors'), artifact)
})
afterAll(() => folder.remove())

/**
 * A registry with 16 workers and decisions all the time; then a re-fit for one more worker. The script
 * reports the turns of the event loop until the re-fit is in force, and the CPU time of the main thread in
 * the longest turn. CPU time does not depend on what else runs on the machine.
 */
const SCRIPT = `
import { readFileSync } from 'node:fs'
const from = path => import(new URL(path, process.argv[2]))
const [{ Registry }, { LoadTracker }, { RoutingControl }, { Router }, { OffThread }, { Decisions }] = await Promise.all(
  ['cluster/registry.js', 'cluster/tickets.js', 'gateway/routing/routing-control.js', 'gateway/routing/router.js', 'gateway/routing/off-thread.js', 'gateway/observe/decisions.js'].map(from))
const [, , , path, policy] = process.argv
const registry = new Registry(new LoadTracker(), { consecutiveFailures: 5, windowMs: 1000, windowRequests: 5, windowFailureShare: 0.5, openMs: 1000 })
const add = n => (registry.add({ id: 'd' + n, role: 'decode', url: 'http://d' + n + ':1' }), registry.setHealth('d' + n, true))
for (let n = 0; n < 16; n++) add(n)
const nothing = { inc() {}, observe() {} }
const metrics = { decisions: { inc() {} }, workerRequests: { inc() {} }, rejects: nothing, covered: nothing, bandSize: nothing, similarity: nothing, routeSeconds: nothing }
const log = { info() {}, warn(...said) { console.error(...said) } }
const read = await new OffThread().run('read', { path })
let refitted
const changed = ({ cause, routing }) => cause === 'refit' && refitted(routing)
const control = new RoutingControl({ routing: { policy, tau: 0.1, prefillPolicy: 'prefix_hash', prefixLoadFactor: 1.25, minCovered: 0.5, refit: 'auto' }, registry, log, changed, artifact: { ...read, file: path } })
const decisions = new Decisions({ metrics, kept: 256 })
const router = new Router({ registry, decisions, prefillPolicy: control.prefillPolicy, table: control.firstTable(), tableFor: shape => control.tableFor(shape) })
control.drive(router)
const { layers, experts, topK } = read.artifact.about
const counts = Uint16Array.from({ length: layers * experts }, (_, c) => (c % experts < 2 * topK ? 50 : 0))
const eldr = { v: 1, layers, experts, top_k: topK, tokens: 100, covered: 100, shift: 0, counts: Buffer.from(counts.buffer).toString('base64') }
const handoff = { counts: Buffer.from(JSON.stringify(eldr)) }
const live = []
const decide = () => {
  live.push(router.toDecode('r', handoff, 100, new Set()))
  if (live.length > 400) { live.shift().end('succeeded') }
}
for (let n = 0; n < 400; n++) decide()
/** CPU time of the main thread. */
const threadCpuMs = () => Number(readFileSync('/proc/thread-self/schedstat', 'utf8').split(' ')[0]) / 1e6
/** Decides about once per millisecond until the promise is kept. */
async function decideUntil(done) {
  let [over, turns, longestMs] = [false, 0, 0]
  done.then(() => (over = true))
  const cpu = process.cpuUsage()
  for (let fromMs = threadCpuMs(); !over; turns++) {
    decide()
    await new Promise(resolve => setTimeout(resolve, 1))
    const nowMs = threadCpuMs()
    longestMs = Math.max(longestMs, nowMs - fromMs)
    fromMs = nowMs
  }
  const { user, system } = process.cpuUsage(cpu)
  return { turns, longestMs, allThreadsMs: (user + system) / 1000 }
}
await decideUntil(new Promise(resolve => setTimeout(resolve, 300))) // until all is compiled
const done = new Promise(resolve => (refitted = resolve))
if (policy === 'eldr') add(16)
else void control.refit(17)
const load = await decideUntil(done)
decide() // with the new clusters
const { about, calibration } = control.loaded.artifact
console.log(JSON.stringify({ load, sizes: about.sizes, clusterOf: Array.from(calibration.clusterOf), similarities: decisions.last(1)[0].candidates.map(c => c.similarity), hasPatterns: calibration.patterns !== undefined }))
control.close()
`

interface Measured {
  readonly load: {
    readonly turns: number
    /** CPU time of the main thread in its longest turn, and of all threads, until the re-fit was in force. */
    readonly longestMs: number
    readonly allThreadsMs: number
  }
  readonly sizes: readonly number[]
  readonly clusterOf: readonly number[]
  readonly similarities: readonly (number | null)[]
  readonly hasPatterns: boolean
}

function measure(policy: string): Promise<Measured> {
  const script = join(folder.path, 'measure.mjs')
  writeFileSync(script, SCRIPT)
  const args = [script, dist.href, join(folder.path, 'artifact.safetensors'), policy]
  return new Promise((resolve, reject) =>
    execFile(process.execPath, args, (error, out, err) => {
      if (error !== null) return reject(new Error(err, { cause: error }))
      return resolve(JSON.parse(out) as Measured)
    }),
  )
}

/** A re-fit on the main thread would be one turn with nearly all of the CPU time. */
function expectFreeEventLoop({ load }: Measured): void {
  expect(load.turns, JSON.stringify(load)).toBeGreaterThan(20)
  expect(load.longestMs, JSON.stringify(load)).toBeLessThan(0.1 * load.allThreadsMs)
}

// The CPU time of one thread is known on Linux only.
describe.runIf(process.platform === 'linux')('a re-fit in a thread', () => {
  it('keeps the event loop free while it runs and when its result is applied', async () => {
    const measured = await measure('eldr')
    expectFreeEventLoop(measured)
    expect(measured.sizes).toHaveLength(17)
    expect(measured.similarities).toHaveLength(17)
    for (const similarity of measured.similarities) expect(similarity).toEqual(expect.any(Number))
  })

  it('gives the same result as a re-fit on the main thread, and keeps the rest of the artifact', async () => {
    const measured = await measure('union')
    expectFreeEventLoop(measured)
    const { balance, seed, restarts } = artifact.about
    const expected = refit(artifact, { workers: 17, balance, seed, restarts }, '').artifact
    expect(measured.clusterOf).toEqual(Array.from(expected.calibration.clusterOf))
    expect(measured.sizes).toEqual(expected.about.sizes)
    expect(measured.hasPatterns).toBe(true)
  })
})
