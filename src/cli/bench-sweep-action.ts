import { withSafetensors } from '../trace/safetensors-file.ts'
import { firstModel, openEndpoint } from '../load/endpoint.ts'
import { type AdminAccess, type AttachedCluster, attachCluster } from '../load/gateway-cluster.ts'
import { readTraceRows } from '../load/synthetic-sources.ts'
import { loadWatch } from '../load/progress.ts'
import {
  type LiveSettings,
  runLive,
  sharedWorkload,
  type SharedWorkload,
  type SweepCell,
  sweepRow,
  type SweepRow,
} from '../load/sweep.ts'
import { sweepTables } from '../load/sweep-tables.ts'
import { stageProgress } from '../report/progress.ts'
import { terminalOn } from '../report/terminal.ts'
import type { SimulationResult } from '../sim/result.ts'
import { openStudy } from '../sim/study-pool.ts'
import type { StudyData } from '../sim/study.ts'
import { parseTopology, topologyText } from '../sim/topology.ts'
import { parseVariant } from '../sim/variant.ts'
import { VERSION } from '../version.ts'
import type { BenchFlags } from './bench.ts'
import { usageError } from './options.ts'
import { formOf, REQUESTS } from './bench-plan.ts'
import { show } from './bench-action.ts'

export const SWEEP_FORMAT = 'eldr.bench-sweep.v1'

/**
 * `eldr bench --sweep`. Simulations run first, so that they do not take CPU from the cluster while it is
 * measured.
 */
export async function benchSweepAction(
  flags: BenchFlags,
  attach: (access: AdminAccess) => Promise<AttachedCluster> = attachCluster,
): Promise<void> {
  const { policies = ['round_robin', 'eldr', 'union'], rates = [20, 40], requests = REQUESTS, seed } = flags
  for (const name of policies) checkPolicy(name)
  const cells = rates.flatMap(rate => policies.map(policy => ({ policy, rate })))
  const { adminToken, insecure } = flags
  const cluster = await attach({ url: flags.url!, adminToken, insecure })
  try {
    const study = studyOf(flags, cluster)
    const rows = await readTraceRows(flags.trace!)
    const shared = new Map(
      rates.map(rate => [rate, sharedWorkload(rows, study.arrivals, rate, requests, seed)]),
    )
    const simulated = await simulateAll(study, cells, shared, flags)
    const live = await liveSettings(flags, cluster, rows)
    const done: SweepRow[] = []
    let isCleared = true
    for (const [at, cell] of cells.entries()) {
      const watch = flags.quiet
        ? undefined
        : loadWatch(terminalOn(process.stderr), `${cell.policy} at ${cell.rate}/s`, requests)
      const { figures, cachesCleared } = await runLive(cluster, cell, shared.get(cell.rate)!, {
        ...live,
        onProgress: watch?.progress,
      })
      watch?.clear()
      isCleared &&= cachesCleared === true
      done.push(sweepRow(cell, figures, simulated[at]!))
    }
    const notes = [...(await notesOf(flags, cluster, isCleared)), ...NOTES]
    const settings = { ...study, url: flags.url, seed, model: live.model, api: flags.api }
    const result = {
      format: SWEEP_FORMAT,
      version: VERSION,
      at: new Date().toISOString(),
      settings,
      notes,
      cells: done,
    }
    await show(flags, result, terminal => sweepTables(done, notes, terminal))
  } finally {
    await cluster.stop()
  }
}

const NOTES = [
  'TPOT: live from the first token that the client sees, simulated from the first that decode makes. TTFT: live to the client’s first token, which decode sends; simulated to prefill’s token, without the transfer and the first step.',
]

/** A gateway cannot know the future, so variants such as union@true run only in the simulator. */
function checkPolicy(name: string): void {
  const variant = parseVariant(name)
  if (variant === undefined || variant.foresight !== undefined || variant.cost !== undefined)
    throw usageError(
      `policy ${JSON.stringify(name)}`,
      'a policy of the gateway, band@TAU or eldr@TAU',
      'Choose another policy.',
    )
}

function studyOf(flags: BenchFlags, cluster: AttachedCluster): StudyData {
  const topology = topologyText(parseTopology(flags.topology ?? cluster.topology))
  if (topology !== cluster.topology)
    throw usageError(
      `--topology ${topology}`,
      `${cluster.topology}, the gateway’s workers`,
      'Remove it, or start those workers.',
    )
  const {
    trace,
    artifact,
    arrivals = 'poisson',
    requests = REQUESTS,
    profile = 'h200-first',
    sloTtft,
    sloTpot,
  } = flags
  const slo =
    sloTtft === undefined && sloTpot === undefined ? undefined : { ttftMs: sloTtft, tpotMs: sloTpot }
  return { trace: trace!, profile, topology, requests, arrivals, rows: 'passes', artifact, slo }
}

async function simulateAll(
  study: StudyData,
  cells: readonly SweepCell[],
  shared: ReadonlyMap<number, SharedWorkload>,
  { seed, quiet }: BenchFlags,
): Promise<SimulationResult[]> {
  const err = terminalOn(process.stderr)
  const watch = stageProgress(err, quiet === true || !err.live)
  const pool = openStudy(study)
  const jobs = cells.map(({ policy, rate }) => ({
    variant: policy,
    rate,
    seed,
    setting: { rowList: shared.get(rate)!.rowList },
  }))
  const results = await pool
    .run(jobs, (done, of) => watch.progress?.('simulations', done, of))
    .finally(pool.close)
  watch.clear?.()
  return results
}

async function liveSettings(
  flags: BenchFlags,
  cluster: AttachedCluster,
  rows: LiveSettings['rows'],
): Promise<LiveSettings> {
  const { api, apiKey, insecure, seed, sloTtft, sloTpot } = flags
  const access = { apiKey, insecure }
  const endpoint = openEndpoint({ url: cluster.url, api, ...access })
  const model = await (flags.model ?? firstModel(endpoint).finally(() => endpoint.close()))
  const slo = { ttftMs: sloTtft, tpotMs: sloTpot }
  return { rows, api, form: formOf(flags), model, ...access, seed, timeoutMs: flags.timeout * 1000, slo }
}

/** Known reasons, other than model error, for live and simulated results to differ. */
async function notesOf(
  { artifact }: BenchFlags,
  { artifactSha256 }: AttachedCluster,
  isCleared: boolean,
): Promise<string[]> {
  const given = artifact === undefined ? undefined : await withSafetensors(artifact, file => file.sha256())
  return [
    ...(given === artifactSha256 ? [] : ['The gateway routes by another artifact than the simulator.']),
    ...(isCleared
      ? []
      : ['Not every worker let its prefix cache be cleared between runs: later runs may have better TTFT.']),
  ]
}
