import { writeArtifact } from '../fit/artifact-write.ts'
import { figuresOf } from '../fit/figures.ts'
import { fit } from '../fit/fit.ts'
import { writePlacement } from '../fit/placement-file.ts'
import { createStages } from '../fit/stages.ts'
import { summaryOf } from '../fit/summarise.ts'
import { fitTables } from '../report/fit-tables.ts'
import { stageProgress } from '../report/progress.ts'
import { duration } from '../report/numbers.ts'
import { printable, terminalOn } from '../report/terminal.ts'
import { withTrace } from '../trace/trace.ts'
import { writeFileAtomic } from '../trace/write-atomic.ts'
import type { FitFlags } from './fit.ts'
import { checkOutputs, checkPlacementFlags, placementPath } from './outputs.ts'

/** `eldr fit` */
export async function fitAction(tracePath: string, flags: FitFlags): Promise<void> {
  checkPlacementFlags(flags)
  const placementFile =
    flags.ranks === undefined ? undefined : (flags.placementOut ?? placementPath(flags.out))
  await checkOutputs([tracePath], [flags.out, placementFile, flags.report])
  const [out, err] = [terminalOn(process.stdout), terminalOn(process.stderr)]
  const stages = createStages(stageProgress(err, flags.quiet === true))
  await withTrace(tracePath, async trace => {
    const fitted = await fit(trace, flags, stages)
    const { artifact, placement } = fitted
    await stages.run('write', async () => {
      await writeArtifact(flags.out, artifact)
      if (placement && placementFile)
        await writePlacement(placementFile, {
          ...placement,
          model: trace.model,
          traceSha256: artifact.about.traceSha256,
        })
    })
    if (flags.report !== undefined) {
      await stages.run('report', async () => {
        const { fitPage } = await import('../report/fit-page.ts')
        const page = fitPage(summaryOf(fitted, trace, flags, stages.times), figuresOf(fitted, trace.domains))
        await writeFileAtomic(flags.report!, [page])
      })
    }
    const summary = summaryOf(fitted, trace, flags, stages.times)
    const files = {
      artifact: flags.out,
      ...(placementFile && { placement: placementFile }),
      ...(flags.report && { report: flags.report }),
    }
    if (flags.json) return out.write(`${JSON.stringify({ ...summary, files }, null, 2)}\n`)
    const total = stages.times.reduce((sum, { ms }) => sum + ms, 0)
    out.write(`\n${fitTables(summary, out)}\n\n`)
    for (const [kind, file] of Object.entries(files))
      out.write(`${out.accent(kind.padEnd(9))} ${printable(file)}\n`)
    out.write(`${out.dim(`fitted in ${duration(total)}`)}\n`)
  })
}
