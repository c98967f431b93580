import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { EldrError } from '../errors.ts'
import { reproduce } from '../paper/reproduce.ts'
import { resultsJson } from '../paper/report.ts'
import { exhibitPage } from '../report/exhibit-page.ts'
import { exhibitSummary } from '../report/exhibit-summary.ts'
import { duration } from '../report/numbers.ts'
import { stageProgress } from '../report/progress.ts'
import { printable, type Terminal, terminalOn } from '../report/terminal.ts'
import { writeFileAtomic } from '../trace/write-atomic.ts'
import { VERSION } from '../version.ts'
import { checkOutputs } from './outputs.ts'
import type { ReproduceFlags } from './reproduce.ts'

/** `eldr reproduce` */
export async function reproduceAction(flags: ReproduceFlags): Promise<void> {
  const files = { results: join(flags.out, 'results.json'), report: join(flags.out, 'results.html') }
  const artifacts = join(flags.out, 'artifacts')
  await mkdir(artifacts, { recursive: true }).catch((cause: unknown) => {
    throw new EldrError('ELDR_FILE_UNWRITABLE', {
      file: artifacts,
      found: 'the folder does not exist and cannot be created',
      cause,
    })
  })
  await checkOutputs([], Object.values(files))
  const [out, err] = [terminalOn(process.stdout), terminalOn(process.stderr)]
  const from = performance.now()
  const watch = watchStages(err, flags.quiet === true)
  const report = await reproduce({
    traces: flags.traces,
    workloads: flags.workloads,
    profile: flags.profile,
    seeds: flags.seeds,
    quick: flags.quick === true,
    artifacts,
    onProgress: watch.progress,
  })
  watch.end()
  const json = resultsJson(report)
  await writeFileAtomic(files.results, [json])
  await writeFileAtomic(files.report, [exhibitPage(report, VERSION)])
  if (flags.json) return out.write(json)
  out.write(`\n${exhibitSummary(report, out)}\n\n`)
  for (const [kind, file] of Object.entries(files))
    out.write(`${out.accent(kind.padEnd(9))} ${printable(file)}\n`)
  out.write(`${out.dim(`finished in ${duration(performance.now() - from)}`)}\n`)
}

/** Prints one line per finished stage, and a progress line that is overwritten while a stage runs. */
function watchStages(terminal: Terminal, quiet: boolean) {
  const watch = stageProgress(terminal, quiet)
  let stage: { readonly name: string; readonly from: number } | undefined
  function end(): void {
    if (stage !== undefined) watch.ended?.(stage.name, performance.now() - stage.from)
    stage = undefined
  }
  return {
    end,
    progress(name: string, done: number, of: number): void {
      if (stage?.name !== name) {
        end()
        stage = { name, from: performance.now() }
        watch.started?.(name)
      }
      watch.progress?.(name, done, of)
    },
  }
}
