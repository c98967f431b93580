import { EldrError } from '../errors.ts'
import { POLICIES } from '../policy/decode-policy.ts'
import { simulationTables } from '../report/simulation-tables.ts'
import { stageProgress } from '../report/progress.ts'
import { terminalOn } from '../report/terminal.ts'
import { openStudy } from '../sim/study-pool.ts'
import type { StudyData } from '../sim/study.ts'
import { grid, sweep } from '../sim/sweep.ts'
import { parseTopology } from '../sim/topology.ts'
import { parseVariant } from '../sim/variant.ts'
import type { SimulateFlags } from './simulate.ts'

/** `eldr simulate` */
export async function simulateAction(flags: SimulateFlags): Promise<void> {
  parseTopology(flags.topology)
  const unknown = flags.policies.find(name => parseVariant(name) === undefined)
  if (unknown !== undefined) {
    throw new EldrError('ELDR_USAGE', {
      found: `policy ${JSON.stringify(unknown)}`,
      expected: `one of ${POLICIES.join(', ')}, or eldr@TAU`,
      todo: 'Name a policy.',
    })
  }
  const [out, err] = [terminalOn(process.stdout), terminalOn(process.stderr)]
  const watch = stageProgress(err, flags.quiet === true || !err.live)
  const { trace, artifact, profile, topology, requests, arrivals, rows } = flags
  const data: StudyData = { trace, profile, topology, requests, arrivals, rows, ...(artifact !== undefined && { artifact }) }
  const from = performance.now()
  const pool = openStudy(data)
  const points = await sweep({
    cells: grid(flags.policies, flags.rates),
    seeds: Array.from({ length: flags.seeds }, (_, seed) => seed),
    pool,
    onProgress: (done, of) => watch.progress?.('runs', done, of),
  }).finally(pool.close)
  watch.clear?.()
  const seconds = (performance.now() - from) / 1000
  if (flags.json) out.write(`${JSON.stringify({ ...data, seeds: flags.seeds, seconds, points }, null, 2)}\n`)
  else out.write(`\n${simulationTables(points, data, flags.seeds, seconds, out)}\n`)
}
