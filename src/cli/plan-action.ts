import { EldrError } from '../errors.ts'
import { POLICIES } from '../policy/decode-policy.ts'
import { planTables } from '../report/plan-tables.ts'
import { verdictInWords } from '../report/plan-words.ts'
import { stageProgress } from '../report/progress.ts'
import type { SimulationSources } from '../report/simulation-report.ts'
import { printable, terminalOn } from '../report/terminal.ts'
import { LOAD_BALANCERS } from '../sim/compare.ts'
import { makePlan, type Plan, type PlanAsked } from '../sim/plan.ts'
import { openRefits } from '../sim/refits.ts'
import { openStudy } from '../sim/study-pool.ts'
import { parseTopology } from '../sim/topology.ts'
import { parseVariant } from '../sim/variant.ts'
import { writeFileAtomic } from '../trace/write-atomic.ts'
import { VERSION } from '../version.ts'
import { checkOutputs } from './outputs.ts'
import type { PlanFlags } from './plan.ts'
import { GPU_HOUR } from './simulate.ts'
import { sourcesOf } from './simulate-sources.ts'
import { withTemporaryFolder } from './temporary-folder.ts'

/** `eldr plan` */
export async function planAction(flags: PlanFlags): Promise<void> {
  const asked = askedOf(flags)
  await checkOutputs([flags.trace, flags.artifact, flags.profile], [flags.report])
  const [out, err] = [terminalOn(process.stdout), terminalOn(process.stderr)]
  const watch = stageProgress(err, flags.quiet === true || !err.live)
  const from = performance.now()
  const sources = flags.report === undefined ? undefined : await sourcesOf(asked.study) // the files as they were before the runs
  const plan = await withTemporaryFolder(async folder => {
    const refits = await openRefits(flags.artifact, folder)
    const pool = openStudy(asked.study)
    return makePlan(asked, {
      pool,
      refits,
      onProgress: (what, done, of) => watch.progress?.(what, done, of),
    }).finally(pool.close)
  })
  watch.clear?.()
  const seconds = (performance.now() - from) / 1000
  if (sources !== undefined) await writeReport(flags.report!, plan, sources)
  if (flags.json) {
    const files = flags.report === undefined ? {} : { files: { report: flags.report } }
    out.write(
      `${JSON.stringify({ ...plan, verdict: { ...plan.verdict, text: verdictInWords(plan) }, seconds, ...files }, null, 2)}\n`,
    )
    return
  }
  out.write(`\n${planTables(plan, seconds, out)}\n`)
  if (flags.report !== undefined) out.write(`\n${out.accent('report')} ${printable(flags.report)}\n`)
}

async function writeReport(file: string, plan: Plan, sources: SimulationSources): Promise<void> {
  const { planReport } = await import('../report/plan-report.ts')
  const { exhibitPage } = await import('../report/exhibit-page.ts')
  await writeFileAtomic(file, [exhibitPage(planReport(plan, sources, VERSION), VERSION)])
}

/** What the flags ask for, or why they contradict each other: found out before anything is read. */
function askedOf(flags: PlanFlags): PlanAsked {
  const { trace, artifact, profile, topology, requests, policies, seeds, sloTpot, sloTtft, rate, gpuHour } =
    flags
  const { prefill } = parseTopology(topology)
  if (sloTtft !== undefined && prefill === 0)
    throw wrong(
      `--slo-ttft with ${topology}, which has no prefill`,
      'prefill workers',
      'Name a topology such as 8P16D, or leave it out.',
    )
  checkPolicies(policies)
  const study = {
    trace,
    profile,
    topology,
    requests,
    arrivals: 'poisson',
    rows: 'passes',
    ...(artifact !== undefined && { artifact }),
  } as const
  return {
    study,
    slo: { tpotMs: sloTpot, ...(sloTtft !== undefined && { ttftMs: sloTtft }) },
    policies,
    seeds,
    ...(rate !== undefined && { rate }),
    pricePerGpuHour: gpuHour ?? GPU_HOUR,
    isPriceGiven: gpuHour !== undefined,
  }
}

function checkPolicies(policies: readonly string[]): void {
  const unknown = policies.find(name => parseVariant(name) === undefined)
  if (unknown !== undefined)
    throw wrong(
      `policy ${JSON.stringify(unknown)}`,
      `one of ${POLICIES.join(', ')}, or eldr@TAU`,
      'Name a policy.',
    )
  const balancers = policies.filter(name => LOAD_BALANCERS.includes(name))
  if (balancers.length === 0)
    throw wrong(
      `policies ${policies.join(', ')}`,
      `one of ${LOAD_BALANCERS.join(', ')} to compare with`,
      'Add jsq.',
    )
  if (balancers.length === policies.length)
    throw wrong(
      `policies ${policies.join(', ')}`,
      'one that is no load balancer, to see what it buys',
      'Add eldr or union.',
    )
}

function wrong(found: string, expected: string, todo: string): EldrError {
  return new EldrError('ELDR_USAGE', { found, expected, todo })
}
