import { Command, CommanderError } from 'commander'
import { EldrError } from '../errors.ts'
import { printable, terminalOn, wrapped } from '../report/terminal.ts'
import { VERSION } from '../version.ts'
import { addBench } from './bench.ts'
import { addCalibrate } from './calibrate.ts'
import { addConfig } from './config.ts'
import { addDemo } from './demo.ts'
import { addExperiment } from './experiment.ts'
import { addFit } from './fit.ts'
import { addInspect } from './inspect.ts'
import { addPlan } from './plan.ts'
import { addRefit } from './refit.ts'
import { addReproduce } from './reproduce.ts'
import { addServe } from './serve.ts'
import { addSimulate } from './simulate.ts'
import { addStaleness } from './staleness.ts'
import { addTrace } from './trace.ts'
import { addUp } from './up.ts'
import { addWorker } from './worker.ts'

/**
 * Runs one command line. Exit codes: 0, 1 on failure, 2 on wrong usage, 130 after Ctrl-C. Errors go to
 * stderr.
 */
export async function run(args: readonly string[]): Promise<number> {
  // A closed pipe (`| head`) ends the output, not the work. Any other write error on stdout makes the command
  // fail; write errors on stderr, which carries progress, are ignored.
  let lost: Error | undefined
  process.stdout.on(
    'error',
    (error: NodeJS.ErrnoException) => (lost ??= error.code === 'EPIPE' ? undefined : error),
  )
  process.stderr.on('error', () => undefined)
  const code = await runProgram(createProgram(), args)
  // Wait until all output is flushed or has failed.
  await new Promise<void>(resolve => process.stdout.write('', () => resolve()))
  if (lost === undefined || code !== 0) return code
  return report(
    new EldrError('ELDR_FILE_UNWRITABLE', { file: 'standard output', found: lost.message, cause: lost }),
  )
}

async function runProgram(program: Command, args: readonly string[]): Promise<number> {
  try {
    if (args.length === 0) program.outputHelp()
    else await program.parseAsync(args, { from: 'user' })
    return 0
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2
    return report(error)
  }
}

export function createProgram(): Command {
  const program = new Command('eldr')
    .description(
      'Decode router for mixture-of-experts models: sends requests that use the same experts to the same worker.',
    )
    .version(VERSION)
    .exitOverride()
    .showHelpAfterError('Run the command with --help to see its options.')
    .addHelpText(
      'after',
      `
Examples:
  eldr up --load
  eldr demo
  eldr inspect data/lab16-task.calibration.safetensors
  eldr calibrate --url http://127.0.0.1:8000 --prompts prompts.jsonl --out task.calibration.safetensors --holdout 0.3
  eldr fit data/lab16-task.calibration.safetensors --workers 16 --out task.artifact.safetensors --report task.html
  eldr refit task.artifact.safetensors --workers 24 --out task24.artifact.safetensors
  eldr simulate --trace data/lab16-task.evaluation.safetensors --artifact task.artifact.safetensors --rates 300,500
  eldr staleness --trace data/lab16-task.evaluation.safetensors --artifact task.artifact.safetensors --gateways 4 --view-ages 20,100
  eldr plan --trace data/lab16-task.evaluation.safetensors --artifact task.artifact.safetensors --slo-tpot 15 --rate 400
  eldr reproduce --quick
  eldr serve --prefill http://10.0.0.1:8000 --decode http://10.0.1.1:8000 --decode http://10.0.1.2:8000
  eldr worker --role decode --port 8101
  eldr bench --url http://127.0.0.1:8000 --rate 20 --requests 500
  eldr experiment --url http://127.0.0.1:8000 --policies jsq,union`,
    )
  const commands = [
    addUp,
    addDemo,
    addCalibrate,
    addTrace,
    addFit,
    addRefit,
    addInspect,
    addSimulate,
    addStaleness,
    addPlan,
    addReproduce,
    addServe,
    addWorker,
    addBench,
    addExperiment,
    addConfig,
  ]
  for (const add of commands) add(program)
  return program
}

function report(error: unknown): number {
  const { write, warn, width } = terminalOn(process.stderr)
  if (error instanceof EldrError) {
    for (const problem of error.detail.problems ?? []) write(`${wrapped(printable(problem), width, 2)}\n`)
    write(`${warn('error:')} ${wrapped(printable(error.message), width - 7, 7)}\n`)
    return error.code === 'ELDR_USAGE' || error.code === 'ELDR_CONFIG_INVALID' ? 2 : 1
  }
  const text = error instanceof Error ? (error.stack ?? error.message) : String(error)
  write(`${warn('error:')} this is a bug in ELDR, please report it.\n${text}\n`)
  return 1
}
