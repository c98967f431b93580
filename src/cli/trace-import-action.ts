/** `eldr trace import` */
import { importTrace, spoolOf } from '../calibrate/import.ts'
import { many, runs } from '../report/numbers.ts'
import { stageProgress } from '../report/progress.ts'
import { printable, terminalOn } from '../report/terminal.ts'
import { wrong } from './bench-flags.ts'
import { checkOutputs, evaluationPath } from './outputs.ts'
import { stoppable } from './stoppable.ts'
import type { ImportFlags } from './trace.ts'

/** Lines that are named when they are skipped; all of them are in the JSON. */
const MOST_NAMED = 20

export async function traceImportAction(flags: ImportFlags): Promise<void> {
  const { format, input, out: outFile, experts, moeLayers, seed, steps, promptStart, minCovered } = flags
  if (flags.holdout === undefined && flags.holdoutOut !== undefined)
    throw wrong('--holdout-out without --holdout', 'both', 'Say with --holdout which share goes there.')
  if (format === 'sglang' && (flags.layers === undefined || flags.topK === undefined))
    throw wrong(
      '--format sglang without --layers and --top-k',
      'both',
      'SGLang’s rows do not tell their shape: give num_hidden_layers and num_experts_per_tok of the model.',
    )
  const holdoutOut = flags.holdout === undefined ? undefined : (flags.holdoutOut ?? evaluationPath(outFile))
  await checkOutputs([input], [outFile, holdoutOut, spoolOf(outFile)])
  const [out, err] = [terminalOn(process.stdout), terminalOn(process.stderr)]
  const watch = stageProgress(err, flags.quiet === true || !err.live)
  const plan = {
    format,
    input,
    out: outFile,
    experts,
    moeLayers,
    seed,
    steps,
    promptStart,
    minCovered,
    holdout: flags.holdout ?? 0,
    halfLife: flags.halfLife ?? 0,
    skipBad: flags.skipBad === true,
    force: flags.force === true,
    ...(holdoutOut !== undefined && { holdoutOut }),
    ...(flags.layers !== undefined && { layers: flags.layers }),
    ...(flags.topK !== undefined && { topK: flags.topK }),
    ...(flags.model !== undefined && { model: flags.model }),
    ...(flags.workload !== undefined && { workload: flags.workload }),
    onProgress: (what: string, done: number) => watch.started?.(`${what} line ${done}`),
  }
  const result = await stoppable(stop => importTrace({ ...plan, stop }).finally(() => watch.clear?.()))
  if (flags.json) return void out.write(`${JSON.stringify(result, null, 2)}\n`)
  const { model, layers, topK, imported, skipped, files } = result
  out.write(
    `${printable(model)}: ${layers} layers × ${experts} experts, top ${topK}; layers ${runs(result.moeLayers)} of the rows\n`,
  )
  for (const [kind, file] of Object.entries(files))
    out.write(
      `${out.accent(kind.padEnd(11))} ${printable(file)}  ${out.dim(many(imported[kind as keyof typeof imported], 'request'))}\n`,
    )
  for (const { line, why } of skipped.slice(0, MOST_NAMED))
    out.write(`${out.warn('skipped')} line ${line}: ${printable(why)}\n`)
  if (skipped.length > MOST_NAMED)
    out.write(`${out.warn('skipped')} ${many(skipped.length - MOST_NAMED, 'line')} more\n`)
}
