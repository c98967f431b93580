import { type Command, InvalidArgumentError, Option } from 'commander'
import { wholeNumber } from './options.ts'

export interface CalibrateFlags {
  readonly url: string
  readonly prompts: string
  readonly out: string
  readonly split: 'calibration' | 'evaluation'
  readonly holdout?: number
  readonly holdoutOut?: string
  readonly steps: number
  readonly concurrency: number
  readonly model?: string
  readonly api: 'auto' | 'completions' | 'chat'
  readonly apiKey?: string
  readonly header: readonly string[]
  readonly insecure?: true
  readonly temperature: number
  readonly stopAtEos?: true
  readonly limit?: number
  readonly seed: number
  readonly minCovered: number
  readonly skipRefused?: true
  readonly timeout: number
  readonly retries: number
  readonly workload?: string
  readonly force?: true
  readonly json?: true
  readonly quiet?: true
}

export function addCalibrate(program: Command): void {
  program
    .command('calibrate')
    .summary('send your prompts to a server and record a trace of their experts')
    .description(
      'Sends prompts to a vLLM server with the ELDR plugin, or to an embedded worker, and writes the experts they use to a trace for `eldr fit`. With --holdout some prompts go to a second trace for `eldr simulate`. If the command is interrupted, run it again with the same arguments to resume. No text is stored. docs/guides/calibration.md explains how to choose prompts.',
    )
    .requiredOption(
      '--url <url>',
      'base URL of the server (not of the gateway), such as http://127.0.0.1:8000',
    )
    .requiredOption(
      '--prompts <file.jsonl>',
      'file with one {"prompt"} or {"messages"} per line, optionally with "domain"',
    )
    .requiredOption('-o, --out <file>', 'trace to write')
    .addOption(
      new Option(
        '--split <name>',
        'kind of trace to write to --out; evaluation, for held-out prompts, records the experts of every step',
      )
        .choices(['calibration', 'evaluation'])
        .default('calibration'),
    )
    .option(
      '--holdout <share>',
      'share of the prompts to write to an evaluation trace instead, such as 0.3',
      share,
    )
    .option('--holdout-out <file>', 'evaluation trace to write (default: next to --out)')
    .option('--steps <n>', 'decode steps to record per prompt', wholeNumber(1, 65_535), 128)
    .option('--concurrency <n>', 'concurrent requests', wholeNumber(1, 10_000), 16)
    .option('--model <name>', 'model to request (default: the first model that the server lists)')
    .addOption(
      new Option(
        '--api <name>',
        'auto: chat for lines with messages, completions for the rest; chat: send prompts as a user message',
      )
        .choices(['auto', 'completions', 'chat'])
        .default('auto'),
    )
    .addOption(new Option('--api-key <key>', 'API key for the server').env('OPENAI_API_KEY'))
    .option('--header <name: value>', 'header to add to every request; may be repeated', header, [])
    .option('--insecure', 'accept TLS certificates that cannot be verified')
    .option('--temperature <t>', 'sampling temperature; 0 is greedy', temperature, 0)
    .option('--stop-at-eos', 'stop at the end-of-sequence token, even before --steps')
    .option('--limit <n>', 'use only the first n prompts of the file', wholeNumber(1, 100_000_000))
    .option('--seed <n>', 'random seed of the hold-out and of sampling', wholeNumber(0, 2 ** 40), 0)
    .option(
      '--min-covered <share>',
      'skip prompts if the server reports experts for a smaller share of their tokens',
      shareOrOne,
      1,
    )
    .option('--skip-refused', 'skip prompts that the server rejects instead of stopping')
    .option('--timeout <s>', 'timeout per request, in seconds', seconds, 600)
    .option(
      '--retries <n>',
      'retries of a request while the server is unreachable or busy, with increasing delays',
      wholeNumber(0, 1000),
      6,
    )
    .option('--workload <name>', 'workload name for the trace’s metadata')
    .option('--force', 'overwrite existing traces')
    .option('--json', 'print the result as JSON')
    .option('-q, --quiet', 'print no progress')
    .addHelpText(
      'after',
      `
Examples:
  eldr calibrate --url http://127.0.0.1:8000 --prompts prompts.jsonl --out task.calibration.safetensors --holdout 0.3
  eldr fit task.calibration.safetensors --workers 16 --out task.artifact.safetensors
  eldr simulate --trace task.evaluation.safetensors --artifact task.artifact.safetensors --rates 100`,
    )
    .action(async (flags: CalibrateFlags) => (await import('./calibrate-action.ts')).calibrateAction(flags))
}

/** Above 0 and below 1. */
export function share(text: string): number {
  const value = /^0?\.\d{1,6}$/.test(text) ? Number(text) : NaN
  if (value > 0) return value
  throw new InvalidArgumentError('Expected a number above 0 and below 1, such as 0.3.')
}

export function shareOrOne(text: string): number {
  const value = /^(0|1|0?\.\d{1,6}|[01]\.0+)$/.test(text) ? Number(text) : NaN
  if (value >= 0) return value
  throw new InvalidArgumentError('Expected a number from 0 to 1, such as 0.5.')
}

/** From a millisecond, the resolution of timers, to a day. */
function seconds(text: string): number {
  const value = /^\d{1,5}(\.\d{1,9})?$/.test(text) ? Math.round(Number(text) * 1000) / 1000 : NaN
  if (value > 0 && value <= 86_400) return value
  throw new InvalidArgumentError('Expected seconds from 0.001 to 86400 in plain digits, such as 12.5.')
}

function temperature(text: string): number {
  const value = /^\d{1,2}(\.\d{1,6})?$/.test(text) ? Number(text) : NaN
  if (value >= 0) return value
  throw new InvalidArgumentError('Expected a number from 0, such as 0.8.')
}

function header(text: string, before: readonly string[]): string[] {
  const [, name, value] = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*)$/.exec(text) ?? []
  if (name === undefined)
    throw new InvalidArgumentError('Expected a name and a value, such as "X-Team: search".')
  return [...before, name, value!.trim()]
}
