/** One run: rounds of faults under load, each followed by a quiet point. Stops at the first violation. */
import { Adversary, type Scene } from './adversary/adversary.ts'
import { addWorker, change } from './adversary/operator-faults.ts'
import { drawRound, type Step } from './adversary/schedule.ts'
import { AdminLedger } from './check/admin-ledger.ts'
import { Checker } from './check/checker.ts'
import { Cluster } from './cluster/cluster.ts'
import { DECODES, GATEWAYS, PREFILLS } from './cluster/machines.ts'
import { adminView, CONFIGURED, DRAINED, REMOVED, snapshotOf, whyNotWhole } from './cluster/observer.ts'
import { GIVE_UP_MS, LIMIT_MS } from './cluster/settings.ts'
import { ResumedCount } from './cluster/resumed-count.ts'
import type { Plant } from './load/planted-proxy.ts'
import { type KnownAnswer, nowMs } from './observation.ts'
import { until } from './until.ts'

export interface RunOptions {
  readonly seed: number
  /** Rounds end when it is over. */
  readonly totalMs: number
  readonly known: readonly KnownAnswer[]
  readonly isLoopback: boolean
  readonly complete: boolean
  readonly plant?: Plant
  /** Runs only these steps, in the rounds that have some; none: one round under load alone. */
  readonly only?: ReadonlySet<string>
  readonly say: (text: string) => void
}

export interface RunResult {
  readonly checker: Checker
  readonly steps: readonly Step[]
  readonly rounds: number
  readonly adminChanges: number
  readonly resumed: number
  readonly elapsedMs: number
}

/** With recovery and quiet point a round takes less than 30 s on an idle machine. */
const ROUND_MS = 16_000
const LANES_EACH = 6
/** How long healing may take: restarts, health checks, leases of blocks. */
const RECOVERY_MS = 60_000
const PROBES = 2

export async function run(options: RunOptions): Promise<RunResult> {
  const { seed, known, say, only } = options
  const cluster = await Cluster.start(seed, options.isLoopback)
  try {
    const whole = () => until('a whole cluster', () => whyNotWhole(cluster), RECOVERY_MS)
    await whole()
    const ledger = new AdminLedger(await adminView(cluster), CONFIGURED)
    const topology = { prefills: PREFILLS, decodes: DECODES }
    const checker = new Checker({ known, limitMs: LIMIT_MS, topology, ledger, complete: options.complete })
    const { scene, urls } = await sceneOf(cluster, ledger, checker, options.plant)
    const adversary = new Adversary(scene, checker.faults, say)
    const resumed = new ResumedCount(cluster)
    await cluster.client.load({ known, lanesEach: LANES_EACH, seed, giveUpMs: GIVE_UP_MS })
    const startMs = nowMs()
    const done: Step[] = []
    let round = 0
    for (; nowMs() - startMs < options.totalMs && checker.violations.length === 0; round++) {
      const { network } = cluster.machines
      const hasDisk = [...cluster.gateways.values()].every(({ disk }) => disk.fill !== undefined)
      const drawn = drawRound(round, { seed, roundMs: ROUND_MS, hasNetwork: network !== undefined, hasDisk })
      const steps = drawn.filter(({ id }) => only === undefined || only.has(id))
      if (only !== undefined && round > lastOf(only)) break
      if (steps.length === 0 && only?.size !== 0) continue
      say(`round ${round}, ${((nowMs() - startMs) / 1000).toFixed(0)} s`)
      done.push(...steps)
      await cluster.client.resume(urls)
      const look = () => judgeLoad(cluster, checker)
      await adversary.run(steps, ROUND_MS, look)
      await adversary.heal()
      await Promise.all([
        cluster.client.pause(),
        whole().catch((error: Error) => checker.report('not recovered', error.message)),
      ])
      await look()
      await quietPoint(cluster, checker, ledger)
      await resumed.look()
      checker.probes(await cluster.client.probe(PROBES))
      if (checker.violations.length === 0) await restore(scene)
    }
    return {
      checker,
      steps: done,
      rounds: round,
      adminChanges: ledger.confirmed,
      resumed: resumed.total,
      elapsedMs: nowMs() - startMs,
    }
  } finally {
    await cluster.close()
  }
}

/** The last round that has steps; without any, one round runs under load alone. */
function lastOf(only: ReadonlySet<string>): number {
  return Math.max(0, ...[...only].map(id => Number(id.split(':')[0])))
}

/** A planted proxy is in front of the second gateway, for clients or for operators. */
async function sceneOf(cluster: Cluster, ledger: AdminLedger, checker: Checker, plant: Plant | undefined) {
  const urls = cluster.gatewayUrls
  let call: Scene['call'] = (...given) => cluster.call(...given)
  if (plant === 'forget')
    // As the proxy does: confirmed and dropped.
    call = async (gateway, method, path, body) =>
      gateway === 'gw2' && method === 'PUT'
        ? { status: 200, json: {} }
        : cluster.call(gateway, method, path, body)
  else if (plant !== undefined) urls['gw2'] = await cluster.client.plant(plant, urls['gw2']!)
  const report = (what: string, detail: string) => checker.report(what, detail)
  return { urls, scene: { cluster, ledger, report, call } satisfies Scene }
}

async function judgeLoad(cluster: Cluster, checker: Checker): Promise<void> {
  const { ended, running } = await cluster.client.take()
  checker.ended(ended)
  checker.running(running)
}

/** Waits until nothing is left over and every change is there, and reports what stays wrong. */
async function quietPoint(cluster: Cluster, checker: Checker, ledger: AdminLedger): Promise<void> {
  const look = async () => {
    const [snapshot, view] = await Promise.all([snapshotOf(cluster), adminView(cluster)])
    return { snapshot, view, problems: checker.quietProblems(snapshot, view) }
  }
  let found = await look()
  const isQuiet = async () => {
    found = await look()
    return found.problems.length === 0 ? undefined : JSON.stringify(found.problems)
  }
  await until('quiet', isQuiet, RECOVERY_MS / 2).catch(() => {})
  checker.quiet(found.snapshot, found.problems)
  ledger.settle(found.view)
}

/** Every worker serves again at the start of a round. */
async function restore(scene: Scene): Promise<void> {
  const { cluster } = scene
  const undrained = async () => {
    const view = await adminView(cluster)
    for (const id of DRAINED) {
      if (view['gw1']![`drain:${id}`] === 'not drained') continue
      const made = [{ gateway: 'gw1', field: `drain:${id}`, value: 'not drained' }]
      await change(scene, made, () => cluster.call('gw1', 'POST', `/eldr/workers/${id}/undrain`))
    }
    for (const gateway of GATEWAYS)
      if (view[gateway]![`workers:${REMOVED}`] === 'gone') await addWorker(scene, gateway)
    const now = await adminView(cluster)
    const left = Object.values(now).some(
      fields =>
        fields[`workers:${REMOVED}`] === 'gone' || DRAINED.some(id => fields[`drain:${id}`] === 'drained'),
    )
    return left ? 'workers are drained or gone' : whyNotWhole(cluster)
  }
  await until('all workers', undrained, RECOVERY_MS)
  scene.ledger.settle(await adminView(cluster))
}
