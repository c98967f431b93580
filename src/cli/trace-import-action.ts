/** `eldr trace import` */
import { importTrace, spoolOf } from '../calibrate/import.ts'
import { many, runs } from '../report/numbers.ts'
import { stageProgress } from '../report/progress.ts'
import { printable, terminalOn } from '../report/terminal.ts'
import { usageError } from './options.ts'
import { checkOutputs, evaluationPath } from './outputs.ts'
import { stoppable } from './stoppable.ts'
import type { ImportFlags } from './trace.ts'

/** Limit on the skipped lines listed in text output; the JSON has all of them. */
const MAX_LISTED = 20

export async function traceImportAction(flags: ImportFlags): Promise<void> {
  const { format, input, out: outFile, experts, moeLayers, seed, steps, promptStart, minCovered } = flags
  if (flags.holdout === undefined && flags.holdoutOut !== undefined)
    throw usageError(
      '--holdout-out without --holdout',
      'both',
      'Add --holdout, the share of responses to write there.',
    )
  if (format === 'sglang' && (flags.layers === undefined || flags.topK === undefined))
    throw usageError(
      '--format sglang without --layers and --top-k',
      'both',
      'SGLang’s rows do not contain their shape: pass num_hidden_layers and num_experts_per_tok of the model.',
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
    holdoutOut,
    layers: flags.layers,
    topK: flags.topK,
    model: flags.model,
    workload: flags.workload,
    onProgress: (what: string, done: number) => watch.started?.(`${what} line ${done}`),
  }
  const result = await stoppable(stop => importTrace({ ...plan, stop }).finally(() => watch.clear?.()))
  if (flags.json) return void out.write(`${JSON.stringify(result, null, 2)}\n`)
  const { model, layers, topK, imported, skipped, files } = result
  out.write(
    `${printable(model)}: ${layers} layers × ${experts} experts, top ${topK}; MoE layers ${runs(result.moeLayers)}\n`,
  )
  for (const [kind, file] of Object.entries(files))
    out.write(
      `${out.accent(kind.padEnd(11))} ${printable(file)}  ${out.dim(many(imported[kind as keyof typeof imported], 'request'))}\n`,
    )
  for (const { line, why } of skipped.slice(0, MAX_LISTED))
    out.write(`${out.warn('skipped')} line ${line}: ${printable(why)}\n`)
  if (skipped.length > MAX_LISTED)
    out.write(`${out.warn('skipped')} ${many(skipped.length - MAX_LISTED, 'line')} more\n`)
}
