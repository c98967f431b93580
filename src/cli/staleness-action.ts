import { stageProgress } from '../report/progress.ts'
import { stalenessTables } from '../report/staleness-tables.ts'
import { terminalOn } from '../report/terminal.ts'
import { runStaleness, type StalenessOptions } from '../sim/staleness.ts'
import { openStudy } from '../sim/study-pool.ts'
import { parseTopology } from '../sim/topology.ts'
import { checkPolicies } from './simulate-study.ts'
import { ageList, DEFAULT_AGES, type StalenessFlags } from './staleness.ts'

/** `eldr staleness` */
export async function stalenessAction(flags: StalenessFlags): Promise<void> {
  const request = stalenessRequest(flags)
  const [out, err] = [terminalOn(process.stdout), terminalOn(process.stderr)]
  const watch = stageProgress(err, flags.quiet === true || !err.live)
  const from = performance.now()
  const pool = openStudy(request.study)
  const points = await runStaleness(request, pool, (done, of) => watch.progress?.('runs', done, of)).finally(
    pool.close,
  )
  watch.clear?.()
  const seconds = (performance.now() - from) / 1000
  if (flags.json) {
    const shown = points.map(({ variant, gateways, runs }) => ({
      variant,
      gateways,
      runs,
    }))
    return out.write(`${JSON.stringify({ ...request, seconds, points: shown }, null, 2)}\n`)
  }
  out.write(`\n${stalenessTables(points, request, seconds, out)}\n`)
}

/** Turns the flags into a request. Invalid values are errors before any file is read. */
function stalenessRequest(flags: StalenessFlags): StalenessOptions {
  const {
    trace,
    artifact,
    profile,
    topology,
    requests,
    policies,
    gateways,
    viewAges = ageList(DEFAULT_AGES),
    rate,
    seeds,
  } = flags
  parseTopology(topology)
  checkPolicies(policies)
  const study = {
    trace,
    profile,
    topology,
    requests,
    arrivals: 'poisson',
    // 'passes' would skip rows that are in flight, but a full cluster has more requests in flight than the
    // trace has rows.
    rows: 'replacement',
    artifact,
  } as const
  return { study, policies, rate, gateways, viewAgesMs: viewAges, seeds }
}
