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
    .summary('make traces from recordings of other programs')
    .description(
      'Makes traces from recordings of other programs. `eldr calibrate` records a trace; `eldr inspect` shows one.',
    )
  trace
    .command('import')
    .summary('make a trace from saved responses that include the experts of each token')
    .description(
      'Reads unmodified responses of vLLM (--enable-return-routed-experts) or SGLang (return_routed_experts), one per line, and writes a trace for `eldr fit`. With --holdout some responses go to a second trace for `eldr simulate`. docs/guides/calibration.md shows how to record such files.',
    )
    .addOption(
      new Option(
        '--format <name>',
        'format of the experts: vllm is base64 of .npy, sglang is base64 of raw int32',
      )
        .choices(['vllm', 'sglang'])
        .makeOptionMandatory(),
    )
    .requiredOption('-i, --input <file.jsonl>', 'file with one saved response per line')
    .requiredOption('-o, --out <file>', 'calibration trace to write')
    .requiredOption(
      '--experts <n>',
      'routed experts per layer (responses do not contain this number)',
      wholeNumber(1, 65_536),
    )
    .option(
      '--layers <n>',
      'layers per row: all layers of the model (required for sglang)',
      wholeNumber(1, 4096),
    )
    .option('--top-k <n>', 'experts per token and layer (required for sglang)', wholeNumber(1, 65_536))
    .option(
      '--moe-layers <which>',
      'MoE layers to keep: auto (those that route), all, or a list such as 3-60',
      layerList,
      'auto',
    )
    .option('--model <name>', 'model name for the trace (default: from the responses)')
    .option(
      '--holdout <share>',
      'share of the responses to write to an evaluation trace instead, such as 0.3',
      share,
    )
    .option('--holdout-out <file>', 'evaluation trace to write (default: next to --out)')
    .option(
      '--steps <n>',
      'maximum number of decode steps to keep per response',
      wholeNumber(1, 65_535),
      65_535,
    )
    .option('--half-life <tokens>', 'also store recent counts with this half-life', wholeNumber(1, 177))
    .option(
      '--prompt-start <n>',
      'number of leading prompt tokens whose rows were not requested',
      wholeNumber(0, 2 ** 31 - 1),
      0,
    )
    .option(
      '--min-covered <share>',
      'skip responses with rows for a smaller share of their prompt tokens',
      shareOrOne,
      1,
    )
    .option('--seed <n>', 'random seed of the hold-out', wholeNumber(0, 2 ** 40), 0)
    .option('--workload <name>', 'workload name for the trace’s metadata')
    .option('--skip-bad', 'skip unusable lines instead of stopping')
    .option('--force', 'overwrite existing traces')
    .option('--json', 'print the result as JSON')
    .option('-q, --quiet', 'print no progress')
    .addHelpText(
      'after',
      `
Examples:
  eldr trace import --format vllm --input responses.jsonl --experts 128 --out task.calibration.safetensors --holdout 0.3
  eldr trace import --format sglang --input responses.jsonl --layers 61 --experts 256 --top-k 8 --model deepseek-v3 --out v3.calibration.safetensors`,
    )
    .action(async (flags: ImportFlags) => (await import('./trace-import-action.ts')).traceImportAction(flags))
}
