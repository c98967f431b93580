import { stageProgress } from '../report/progress.ts'
import type { SimulationSources } from '../report/simulation-report.ts'
import { costMeasure } from '../report/simulation-measures.ts'
import { type Simulated, simulationTables } from '../report/simulation-tables.ts'
import { printable, terminalOn } from '../report/terminal.ts'
import { openStudy } from '../sim/study-pool.ts'
import type { StudyData } from '../sim/study.ts'
import { grid, over, sweep } from '../sim/sweep.ts'
import { gpusOf, parseTopology } from '../sim/topology.ts'
import { writeFileAtomic } from '../trace/write-atomic.ts'
import { VERSION } from '../version.ts'
import { checkOutputs } from './outputs.ts'
import { DEFAULTS, GPU_HOUR, type SimulateFlags } from './simulate.ts'
import { benchLoadOf } from './simulate-load.ts'
import { sourcesOf } from './simulate-sources.ts'
import { studyOf } from './simulate-study.ts'

/** `eldr simulate` */
export async function simulateAction(flags: SimulateFlags): Promise<void> {
  const study: StudyData = { ...studyOf(flags), load: await benchLoadOf(flags) }
  await checkOutputs([flags.trace, flags.artifact, flags.workload, flags.profile], [flags.report])
  const { seeds = DEFAULTS.seeds } = flags
  const [out, err] = [terminalOn(process.stdout), terminalOn(process.stderr)]
  const watch = stageProgress(err, flags.quiet === true || !err.live)
  const from = performance.now()
  const sources = flags.report === undefined ? undefined : await sourcesOf(study) // hashed before the runs
  const pool = openStudy(study)
  const points = await sweep({
    cells: grid(flags.policies ?? DEFAULTS.policies, flags.rates ?? DEFAULTS.rates),
    seeds: Array.from({ length: seeds }, (_, at) => (flags.seed ?? 0) + at),
    pool,
    onProgress: (done, of) => watch.progress?.('runs', done, of),
  }).finally(pool.close)
  watch.clear?.()
  const seconds = (performance.now() - from) / 1000
  const simulated: Simulated = {
    points,
    study,
    seeds,
    pricePerGpuHour: flags.gpuHour ?? GPU_HOUR,
  }
  if (sources !== undefined) await writeReport(flags.report!, simulated, sources)
  if (flags.json) return out.write(`${JSON.stringify(resultOf(simulated, seconds, flags.report), null, 2)}\n`)
  out.write(`\n${simulationTables(simulated, { seconds, withCost: flags.gpuHour !== undefined }, out)}\n`)
  if (flags.report !== undefined) out.write(`\n${out.accent('report')} ${printable(flags.report)}\n`)
}

async function writeReport(file: string, simulated: Simulated, sources: SimulationSources): Promise<void> {
  const { simulationReport } = await import('../report/simulation-report.ts')
  const { exhibitPage } = await import('../report/exhibit-page.ts')
  await writeFileAtomic(file, [exhibitPage(simulationReport(simulated, sources, VERSION), VERSION)])
}

/** Output of `--json`: the settings, then every run with all its numbers. */
function resultOf(
  { points, study, seeds, pricePerGpuHour }: Simulated,
  seconds: number,
  report: string | undefined,
): object {
  const cost = costMeasure(pricePerGpuHour)
  const { load, ...rest } = study
  const settings: Omit<StudyData, 'arrivals' | 'load'> & { readonly arrivals: string } = {
    ...rest,
    arrivals: study.workload ? 'recorded' : study.arrivals,
  }
  return {
    ...settings,
    ...(load && {
      requests: undefined, // the load says how many
      load: {
        ...load,
        prompts: load.prompts.map(({ file, requests }) => ({ file, prompts: requests.length })),
      },
    }),
    seeds,
    gpus: gpusOf(parseTopology(study.topology)),
    pricePerGpuHour,
    seconds,
    ...(report !== undefined && { files: { report } }),
    points: points.map(point => ({
      ...point,
      costPerMillionTokens: over(point, cost.of).mean,
      runs: point.runs.map(run => ({ ...run, costPerMillionTokens: cost.of(run) })),
    })),
  }
}
