import { EldrError } from '../errors.ts'
import { compare } from '../load/compare.ts'
import { figuresOf } from '../load/figures.ts'
import { loadWatch } from '../load/progress.ts'
import { type BenchResult, benchResult, readResult } from '../load/result.ts'
import { runLoad } from '../load/run-load.ts'
import { benchTables, comparisonTables } from '../load/tables.ts'
import { printable, terminalOn } from '../report/terminal.ts'
import { writeFileAtomic } from '../trace/write-atomic.ts'
import type { BenchFlags } from './bench.ts'
import { checkBenchFlags } from './bench-flags.ts'
import { usageError } from './options.ts'
import { benchPlan } from './bench-plan.ts'
import { checkOutputs } from './outputs.ts'

/** `eldr bench` */
export async function benchAction(flags: BenchFlags): Promise<void> {
  if (flags.compare !== undefined) return compareAction(flags)
  checkBenchFlags(flags)
  await checkOutputs([flags.prompts, flags.trace, flags.workload, flags.artifact], [jsonFile(flags)])
  if (flags.sweep) {
    const { benchSweepAction } = await import('./bench-sweep-action.ts')
    return flags.url === undefined
      ? (await import('./bench-sweep-up.ts')).sweepOnOwnCluster(flags, benchSweepAction)
      : benchSweepAction(flags)
  }
  const result = await measure(flags)
  await show(flags, result, terminal => benchTables(result, terminal))
  if (result.requests.ok === 0 && result.requests.counted > 0)
    throw new EldrError('ELDR_ENDPOINT_FAILED', {
      found: `all ${result.requests.counted} requests failed (${result.errors[0]!.kind}: ${result.errors[0]!.example})`,
      expected: 'streams that complete',
    })
}

async function measure(flags: BenchFlags): Promise<BenchResult> {
  const { plan, setup } = await benchPlan(flags)
  const err = terminalOn(process.stderr)
  const watch = flags.quiet
    ? undefined
    : loadWatch(err, 'bench', Number.isFinite(plan.requests) ? plan.requests : undefined)
  const at = new Date()
  const run = await runLoad({ ...plan, onProgress: watch?.progress }).finally(() => plan.endpoint.close())
  watch?.clear()
  return benchResult(setup, figuresOf(run, { ttftMs: flags.sloTtft, tpotMs: flags.sloTpot }), at)
}

async function compareAction(flags: BenchFlags): Promise<void> {
  const [first, second, ...more] = flags.compare!
  if (first === undefined || second === undefined || more.length > 0)
    throw usageError(
      `${flags.compare!.length} files after --compare`,
      'two files',
      'Pass the results of two runs: --compare before.json after.json.',
    )
  await checkOutputs([first, second], [jsonFile(flags)])
  const comparison = compare(await readResult(first), await readResult(second))
  await show(flags, { a: first, b: second, ...comparison }, terminal =>
    comparisonTables(comparison, [first, second], terminal),
  )
}

export const jsonFile = ({ json }: BenchFlags): string | undefined =>
  typeof json === 'string' ? json : undefined

/** Prints tables, or with --json the JSON; with --json FILE it writes the file and prints the tables. */
export async function show(
  flags: BenchFlags,
  result: object,
  tables: (terminal: ReturnType<typeof terminalOn>) => string,
): Promise<void> {
  const out = terminalOn(process.stdout)
  const text = `${JSON.stringify(result, null, 2)}\n`
  if (flags.json === true) return void out.write(text)
  const file = jsonFile(flags)
  if (file !== undefined) await writeFileAtomic(file, [text])
  out.write(`\n${tables(out)}\n`)
  if (file !== undefined) out.write(`\n${out.accent('json')} ${printable(file)}\n`)
}
