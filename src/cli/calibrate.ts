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
    .summary('record a trace of your own prompts on a server')
    .description(
      'Sends prompts to a vLLM server with the ELDR plugin, or to an embedded worker, and writes what comes back of their experts as a trace for `eldr fit`, and as a second one for `eldr simulate` where some are held out. Stopped by whatever, the same command line goes on where it was. No text is kept. docs/guides/calibration.md says how to choose prompts.',
    )
    .requiredOption('--url <url>', 'the server itself, such as http://127.0.0.1:8000')
    .requiredOption('--prompts <file.jsonl>', 'lines of {"prompt"} or {"messages"}, with "domain" or without')
    .requiredOption('-o, --out <file>', 'trace to write')
    .addOption(
      new Option(
        '--split <name>',
        'what --out is: evaluation for prompts that were held out before, with the experts of every step',
      )
        .choices(['calibration', 'evaluation'])
        .default('calibration'),
    )
    .option(
      '--holdout <share>',
      'share of the prompts that goes into an evaluation trace instead, such as 0.3',
      share,
    )
    .option('--holdout-out <file>', 'evaluation trace to write (default: beside the other)')
    .option('--steps <n>', 'decode steps to record of each', wholeNumber(1, 65_535), 128)
    .option('--concurrency <n>', 'requests at a time', wholeNumber(1, 10_000), 16)
    .option('--model <name>', 'model to ask for (default: the first that the server names)')
    .addOption(
      new Option(
        '--api <name>',
        'auto: messages as chats, the rest as completions; chat: prompts as a user’s message',
      )
        .choices(['auto', 'completions', 'chat'])
        .default('auto'),
    )
    .addOption(new Option('--api-key <key>', 'key for the server').env('OPENAI_API_KEY'))
    .option('--header <name: value>', 'header of every request; may be given again', header, [])
    .option('--insecure', 'take certificates that nobody vouches for')
    .option('--temperature <t>', 'of sampling; 0 takes the likeliest token', temperature, 0)
    .option('--stop-at-eos', 'let texts end where the model ends them, with fewer steps')
    .option('--limit <n>', 'only the first prompts of the file', wholeNumber(1, 100_000_000))
    .option('--seed <n>', 'of the hold-out and of sampling', wholeNumber(0, 2 ** 40), 0)
    .option('--min-covered <share>', 'skip prompts of whose tokens fewer have known experts', shareOrOne, 1)
    .option('--skip-refused', 'skip prompts that the server refuses, in place of stopping')
    .option('--timeout <s>', 'of one request', seconds, 600)
    .option(
      '--retries <n>',
      'of a request whose server is away or busy, with growing pauses',
      wholeNumber(0, 1000),
      6,
    )
    .option('--workload <name>', 'for the trace’s metadata')
    .option('--force', 'replace traces that are there')
    .option('--json', 'print the result as JSON')
    .option('-q, --quiet', 'no progress')
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

/** From a millisecond, in which timers count, to a day. */
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
