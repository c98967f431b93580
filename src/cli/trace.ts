import { type Command, Option } from 'commander'
import { share, shareOrOne } from './calibrate.ts'
import { layerList, wholeNumber } from './options.ts'

export interface ImportFlags {
  readonly format: 'vllm' | 'sglang'
  readonly input: string
  readonly out: string
  readonly experts: number
  readonly layers?: number
  readonly topK?: number
  readonly moeLayers: 'auto' | 'all' | readonly number[]
  readonly model?: string
  readonly holdout?: number
  readonly holdoutOut?: string
  readonly steps: number
  readonly halfLife?: number
  readonly promptStart: number
  readonly minCovered: number
  readonly seed: number
  readonly workload?: string
  readonly skipBad?: true
  readonly force?: true
  readonly json?: true
  readonly quiet?: true
}

export function addTrace(program: Command): void {
  const trace = program
    .command('trace')
    .summary('make traces of what other programs recorded')
    .description('Traces from elsewhere. `eldr calibrate` records one; `eldr inspect` shows one.')
  trace
    .command('import')
    .summary('make a trace of saved answers with the experts of each token')
    .description(
      'Reads answers of vLLM (--enable-return-routed-experts) or SGLang (return_routed_experts), one a line as they came, and writes the trace that `eldr fit` reads, and a second one for `eldr simulate` where some are held out. docs/guides/calibration.md has the commands that make such files.',
    )
    .addOption(
      new Option('--format <name>', 'vllm: base64 of .npy; sglang: base64 of raw int32')
        .choices(['vllm', 'sglang'])
        .makeOptionMandatory(),
    )
    .requiredOption('-i, --input <file.jsonl>', 'a saved answer a line')
    .requiredOption('-o, --out <file>', 'calibration trace to write')
    .requiredOption(
      '--experts <n>',
      'routed experts of a layer, which no answer says',
      wholeNumber(1, 65_536),
    )
    .option('--layers <n>', 'layers of the rows, all of the model’s (sglang needs it)', wholeNumber(1, 4096))
    .option('--top-k <n>', 'experts of a token in a layer (sglang needs it)', wholeNumber(1, 65_536))
    .option('--moe-layers <which>', 'auto (those that route), all, or a list such as 3-60', layerList, 'auto')
    .option('--model <name>', 'for the trace (default: as the answers say)')
    .option(
      '--holdout <share>',
      'share of the answers that goes into an evaluation trace instead, such as 0.3',
      share,
    )
    .option('--holdout-out <file>', 'evaluation trace to write (default: beside the other)')
    .option('--steps <n>', 'decode steps to keep of each, at most', wholeNumber(1, 65_535), 65_535)
    .option('--half-life <tokens>', 'also make recent counts of this half-life', wholeNumber(1, 177))
    .option(
      '--prompt-start <n>',
      'leading prompt tokens whose rows were not asked for',
      wholeNumber(0, 2 ** 31 - 1),
      0,
    )
    .option('--min-covered <share>', 'skip answers of whose prompt tokens fewer have rows', shareOrOne, 1)
    .option('--seed <n>', 'of the hold-out', wholeNumber(0, 2 ** 40), 0)
    .option('--workload <name>', 'for the trace’s metadata')
    .option('--skip-bad', 'leave out lines that cannot be used, in place of stopping')
    .option('--force', 'replace traces that are there')
    .option('--json', 'print the result as JSON')
    .option('-q, --quiet', 'no progress')
    .addHelpText(
      'after',
      `
Examples:
  eldr trace import --format vllm --input answers.jsonl --experts 128 --out task.calibration.safetensors --holdout 0.3
  eldr trace import --format sglang --input answers.jsonl --layers 61 --experts 256 --top-k 8 --model deepseek-v3 --out v3.calibration.safetensors`,
    )
    .action(async (flags: ImportFlags) => (await import('./trace-import-action.ts')).traceImportAction(flags))
}
