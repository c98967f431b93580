import { planTables } from '../report/plan-tables.ts'
import { verdictInWords } from '../report/plan-words.ts'
import { stageProgress } from '../report/progress.ts'
import type { SimulationSources } from '../report/simulation-report.ts'
import { printable, terminalOn } from '../report/terminal.ts'
import { LOAD_BALANCERS } from '../sim/compare.ts'
import { makePlan, type Plan, type PlanOptions } from '../sim/plan.ts'
import { openRefits } from '../sim/refits.ts'
import { openStudy } from '../sim/study-pool.ts'
import { parseTopology, topologyText } from '../sim/topology.ts'
import { writeFileAtomic } from '../trace/write-atomic.ts'
import { VERSION } from '../version.ts'
import { usageError } from './options.ts'
import { checkOutputs } from './outputs.ts'
import type { PlanFlags } from './plan.ts'
import { GPU_HOUR } from './simulate.ts'
import { sourcesOf } from './simulate-sources.ts'
import { checkPolicies } from './simulate-study.ts'
import { withTemporaryFolder } from './temporary-folder.ts'

/** `eldr plan` */
export async function planAction(flags: PlanFlags): Promise<void> {
  const request = planRequest(flags)
  await checkOutputs([flags.trace, flags.artifact, flags.profile], [flags.report])
  const [out, err] = [terminalOn(process.stdout), terminalOn(process.stderr)]
  const watch = stageProgress(err, flags.quiet === true || !err.live)
  const from = performance.now()
  // Hashed before the runs.
  const sources = flags.report === undefined ? undefined : await sourcesOf(request.study)
  const plan = await withTemporaryFolder(async folder => {
    const refits = await openRefits(flags.artifact, folder)
    const pool = openStudy(request.study)
    return makePlan(request, {
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

/** Turns the flags into a plan request. Contradictions are errors before any file is read. */
function planRequest(flags: PlanFlags): PlanOptions {
  const { trace, artifact, profile, topology, requests, policies, seeds, sloTpot, sloTtft, rate, gpuHour } =
    flags
  const { prefill, perDevice = 1 } = parseTopology(topology)
  if (perDevice > 1)
    throw usageError(
      `topology ${topology}`,
      'decode workers that do not share GPUs, as the bounds of a plan assume',
      `Use ${topologyText({ ...parseTopology(topology), perDevice: 1 })}; eldr simulate supports shared GPUs.`,
    )
  if (sloTtft !== undefined && prefill === 0)
    throw usageError(
      `--slo-ttft with ${topology}, which has no prefill workers`,
      'prefill workers',
      'Use a topology such as 8P16D, or remove --slo-ttft.',
    )
  checkPolicies(policies)
  checkCompared(policies)
  const study = {
    trace,
    profile,
    topology,
    requests,
    arrivals: 'poisson',
    rows: 'passes',
    artifact,
  } as const
  return {
    study,
    slo: { tpotMs: sloTpot, ttftMs: sloTtft },
    policies,
    seeds,
    rate,
    pricePerGpuHour: gpuHour ?? GPU_HOUR,
    isPriceGiven: gpuHour !== undefined,
  }
}

function checkCompared(policies: readonly string[]): void {
  const balancers = policies.filter(name => LOAD_BALANCERS.includes(name))
  if (balancers.length === 0)
    throw usageError(
      `policies ${policies.join(', ')}`,
      `at least one load balancer (${LOAD_BALANCERS.join(', ')}) to compare with`,
      'Add jsq.',
    )
  if (balancers.length === policies.length)
    throw usageError(
      `policies ${policies.join(', ')}`,
      'at least one policy that is not a load balancer',
      'Add eldr or union.',
    )
}
