/** `eldr calibrate` */
import { existsSync } from 'node:fs'
import { calibrate, type CalibrationPlan, type CalibrationResult, journalOf } from '../calibrate/calibrate.ts'
import { SKIP_WORDS } from '../calibrate/captured.ts'
import { openEndpoint } from '../load/endpoint.ts'
import { duration, fixed, many, runs, whole } from '../report/numbers.ts'
import { rateProgress } from '../report/progress.ts'
import { printable, type Terminal, terminalOn, wrapped } from '../report/terminal.ts'
import { usageError } from './options.ts'
import type { CalibrateFlags } from './calibrate.ts'
import { checkOutputs, evaluationPath } from './outputs.ts'
import { stoppable } from './stoppable.ts'

/** Limit on the skipped lines listed in text output; the JSON has all of them. */
const MAX_LISTED = 20

export async function calibrateAction(flags: CalibrateFlags): Promise<void> {
  const { holdout } = flags
  if (holdout === undefined && flags.holdoutOut !== undefined)
    throw usageError(
      '--holdout-out without --holdout',
      'both',
      'Add --holdout, the share of prompts to write there.',
    )
  if (holdout !== undefined && flags.split === 'evaluation')
    throw usageError(
      '--holdout with --split evaluation',
      'one of them',
      'Remove --holdout: with --split evaluation all prompts are held out.',
    )
  const holdoutOut = holdout === undefined ? undefined : (flags.holdoutOut ?? evaluationPath(flags.out))
  await checkOutputs([flags.prompts], [flags.out, holdoutOut, journalOf(flags.out)])
  const [out, err] = [terminalOn(process.stdout), terminalOn(process.stderr)]
  const watch = flags.quiet ? undefined : rateProgress(err, 'calibrate')
  const endpoint = openEndpoint({
    url: flags.url,
    api: 'completions',
    apiKey: flags.apiKey,
    headers: flags.header,
    insecure: flags.insecure,
  })
  const stopped = () =>
    existsSync(journalOf(flags.out))
      ? `stopped; results so far are in ${printable(journalOf(flags.out))}. Run the same command again to resume.`
      : 'stopped before any result arrived.'
  const [fromMs, cpu] = [performance.now(), process.cpuUsage()]
  try {
    const plan: Omit<CalibrationPlan, 'stop'> = {
      ...planOf(flags),
      endpoint,
      holdoutOut,
      onProgress: ({ done, resumed, total, skipped, waiting }) =>
        watch?.progress(done, total, resumed, [
          ...(skipped > 0 ? [`skipped ${whole(skipped)}`] : []),
          ...(waiting > 0 ? [err.warn(`${whole(waiting)} waiting for the server`)] : []),
        ]),
      onSkip: (line, why) => watch?.say(`line ${line} skipped: ${printable(why)}`),
    }
    const result = await stoppable(
      stop => calibrate({ ...plan, stop }).finally(() => watch?.clear()),
      () => err.write(`${wrapped(stopped(), err.width)}\n`),
    )
    const { user, system } = process.cpuUsage(cpu)
    show(
      flags,
      result,
      { seconds: (performance.now() - fromMs) / 1000, cpuSeconds: (user + system) / 1e6 },
      out,
    )
  } finally {
    await endpoint.close()
  }
}

function planOf(flags: CalibrateFlags): Omit<CalibrationPlan, 'endpoint' | 'stop'> {
  const { prompts, out, split, steps, concurrency, api, temperature, seed, minCovered, retries } = flags
  return {
    prompts,
    out,
    split,
    steps,
    concurrency,
    api,
    temperature,
    seed,
    minCovered,
    retries,
    holdout: flags.holdout ?? 0,
    ignoreEos: flags.stopAtEos !== true,
    skipRefused: flags.skipRefused === true,
    force: flags.force === true,
    timeoutMs: Math.round(flags.timeout * 1000),
    headers: [
      ...(flags.apiKey === undefined ? [] : ['authorization', `Bearer ${flags.apiKey}`]),
      ...flags.header,
    ],
    model: flags.model,
    limit: flags.limit,
    workload: flags.workload,
  }
}

function show(
  flags: CalibrateFlags,
  result: CalibrationResult,
  times: { seconds: number; cpuSeconds: number },
  out: Terminal,
): void {
  if (flags.json) return void out.write(`${JSON.stringify({ ...result, ...times }, null, 2)}\n`)
  const { model, layers, experts, topK, halfLife, captured, skipped, shorter, files } = result
  const sent = result.prompts - result.resumed
  out.write(
    `${printable(model)}: ${layers} layers × ${experts} experts, top ${topK}${halfLife ? `, recent counts with half-life ${halfLife}` : ''}\n`,
  )
  for (const [kind, file] of Object.entries(files))
    out.write(
      `${out.accent(kind.padEnd(11))} ${printable(file)}  ${out.dim(many(captured[kind as keyof typeof captured], 'request'))}\n`,
    )
  for (const { reason, lines } of skipped) {
    const listed = runs(lines.slice(0, MAX_LISTED))
    out.write(
      `${out.warn('skipped')} ${many(lines.length, 'prompt')}, ${SKIP_WORDS[reason]}: line ${listed}${lines.length > MAX_LISTED ? ', …' : ''}\n`,
    )
  }
  if (skipped.some(({ reason }) => reason === 'not_covered'))
    out.write(
      out.dim('--min-covered 0.5 would keep prompts with known experts for at least half of their tokens\n'),
    )
  if (shorter > 0) out.write(`${many(shorter, 'request')} with fewer decode steps than ${flags.steps}\n`)
  const before = result.resumed > 0 ? `, ${whole(result.resumed)} resumed` : ''
  const rate =
    sent > 0
      ? `, ${fixed(sent / times.seconds, 1)} prompts/s, ${fixed((1000 * times.cpuSeconds) / sent, 1)} ms of client CPU per prompt`
      : ''
  out.write(`${out.dim(`${many(sent, 'prompt')} in ${duration(times.seconds * 1000)}${rate}${before}`)}\n`)
}
