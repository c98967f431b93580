import { stageProgress } from '../report/progress.ts'
import { stalenessTables } from '../report/staleness-tables.ts'
import { terminalOn } from '../report/terminal.ts'
import { runStaleness, type StalenessAsked } from '../sim/staleness.ts'
import { openStudy } from '../sim/study-pool.ts'
import { parseTopology } from '../sim/topology.ts'
import { checkPolicies } from './simulate-study.ts'
import { ageList, DEFAULT_AGES, type StalenessFlags } from './staleness.ts'

/** `eldr staleness` */
export async function stalenessAction(flags: StalenessFlags): Promise<void> {
  const asked = askedOf(flags)
  const [out, err] = [terminalOn(process.stdout), terminalOn(process.stderr)]
  const watch = stageProgress(err, flags.quiet === true || !err.live)
  const from = performance.now()
  const pool = openStudy(asked.study)
  const points = await runStaleness(asked, pool, (done, of) => watch.progress?.('runs', done, of)).finally(
    pool.close,
  )
  watch.clear?.()
  const seconds = (performance.now() - from) / 1000
  if (flags.json) {
    const shown = points.map(({ variant, gateways, runs }) => ({
      variant,
      ...(gateways && { gateways }),
      runs,
    }))
    return out.write(`${JSON.stringify({ ...asked, seconds, points: shown }, null, 2)}\n`)
  }
  out.write(`\n${stalenessTables(points, asked, seconds, out)}\n`)
}

/** What the flags ask for; what is wrong with them shows before anything is read. */
function askedOf(flags: StalenessFlags): StalenessAsked {
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
    rows: 'replacement', // in passes a row in flight lets another go first, and a trace has fewer rows than a full cluster has requests
    ...(artifact !== undefined && { artifact }),
  } as const
  return { study, policies, rate, gateways, viewAgesMs: viewAges, seeds }
}
