import { readArtifact } from '../fit/artifact-read.ts'
import { writeArtifact } from '../fit/artifact-write.ts'
import { placementOf } from '../fit/placement-of.ts'
import { writePlacement } from '../fit/placement-file.ts'
import { refit } from '../fit/refit.ts'
import { createStages } from '../fit/stages.ts'
import { clusterPart } from '../fit/summarise.ts'
import { clusterTable, placementTable } from '../report/fit-tables.ts'
import { stageProgress } from '../report/progress.ts'
import { duration } from '../report/numbers.ts'
import { printable, terminalOn } from '../report/terminal.ts'
import { withinMemory } from '../fit/within-memory.ts'
import { checkOutputs, checkPlacementFlags, placementPath } from './outputs.ts'
import type { RefitFlags } from './refit.ts'

/** `eldr refit` */
export async function refitAction(path: string, flags: RefitFlags): Promise<void> {
  checkPlacementFlags(flags)
  const placementFile =
    flags.ranks === undefined ? undefined : (flags.placementOut ?? placementPath(flags.out))
  await checkOutputs([path], [flags.out, placementFile], flags.out)
  const [out, err] = [terminalOn(process.stdout), terminalOn(process.stderr)]
  const stages = createStages(stageProgress(err, flags.quiet === true))
  const old = await stages.run('read the artifact', () => readArtifact(path))
  const { balance, seed, restarts } = { ...old.about, ...flags }
  const refitted = await stages.run('clusters', () =>
    withinMemory(path, () =>
      refit(old, { workers: flags.workers, balance, seed, restarts, onProgress: stages.progress }, path),
    ),
  )
  const { artifact } = refitted
  const placement =
    flags.ranks === undefined
      ? undefined
      : await stages.run('placement', () => placementOf(artifact, flags.ranks!, flags.batch, path))
  await stages.run('write', async () => {
    await writeArtifact(flags.out, artifact)
    if (placement && placementFile)
      await writePlacement(placementFile, {
        ...placement,
        model: artifact.about.model,
        traceSha256: artifact.about.traceSha256,
      })
  })
  const result = clusterPart(refitted, placement)
  const files = { artifact: flags.out, ...(placementFile && { placement: placementFile }) }
  if (flags.json) {
    out.write(
      `${JSON.stringify({ ...result, was: { workers: old.about.workers }, stages: stages.times, files }, null, 2)}\n`,
    )
    return
  }
  out.write(
    `\n${out.bold(printable(artifact.about.model))}  ${old.about.workers} → ${artifact.about.workers} workers, same signature (${result.chosen}, ${result.layers.length} layers)\n\n`,
  )
  out.write(`${clusterTable(result, artifact.about.domains, out)}\n\n`)
  if (result.placement) out.write(`${placementTable(result.placement, out)}\n\n`)
  for (const [kind, file] of Object.entries(files))
    out.write(`${out.accent(kind.padEnd(9))} ${printable(file)}\n`)
  out.write(`${out.dim(`refitted in ${duration(stages.times.reduce((sum, { ms }) => sum + ms, 0))}`)}\n`)
}
