import type { Command } from 'commander'
import { InvalidArgumentError, Option } from 'commander'
import { positiveNumber, wholeNumber } from './options.ts'

export interface WorkerFlags {
  readonly role: 'prefill' | 'decode' | 'both'
  readonly host: string
  readonly port: number
  readonly kvPort: number
  readonly kvHost?: string
  readonly backend: 'replay' | 'tiny'
  readonly trace?: string
  readonly profile?: string
  readonly speed?: number
  /** `real`, or the name of a cost profile. */
  readonly pace?: string
  readonly dataParallelSize: number
  readonly blocks: number
  readonly blockSize: number
  readonly maxNumSeqs: number
  readonly maxNumBatchedTokens?: number
  readonly maxModelLen?: number
  readonly prefixCaching: boolean
  readonly model?: string
  readonly servedModelName?: string
  readonly leaseMs: number
  readonly recentHalfLife?: number
  readonly enablePromptTokensDetails?: true
  readonly clientStallMs: number
  readonly graceMs: number
  readonly logLevel: string
  readonly jsonReady?: true
}

const port = wholeNumber(0, 65_535)
/** Up to the longest delay of a timer. */
const milliseconds = wholeNumber(1, 2 ** 31 - 1)

export function addWorker(program: Command): void {
  program
    .command('worker')
    .summary('run a prefill or decode worker without a GPU')
    .description(
      'Serves vLLM’s HTTP API and transfers KV blocks from prefill to decode as vLLM’s NIXL connector does. The replay back end takes experts from a trace and step times from a cost profile; the tiny back end computes a small mixture-of-experts model on the CPU. Scheduler, KV blocks and caches are real in both.',
    )
    .addOption(
      new Option('--role <role>', 'which requests it serves')
        .choices(['prefill', 'decode', 'both'])
        .default('both'),
    )
    .option('--host <host>', 'listen address', '127.0.0.1')
    .option('--port <n>', 'port of the HTTP server; 0 picks a free port', port, 8000)
    .option('--kv-port <n>', 'port from which decode workers read KV blocks; 0 picks a free port', port, 0)
    .option('--kv-host <host>', 'host name that decode workers use to reach --kv-port (default: --host)')
    .addOption(
      new Option('--backend <name>', 'back end that runs the steps')
        .choices(['replay', 'tiny'])
        .default('replay'),
    )
    .option('--trace <file>', 'evaluation trace to replay (default: the shipped lab16 task trace)')
    .option(
      '--profile <name>',
      'cost profile of replay: a name under profiles/, or a path (default: h200-first)',
    )
    .option('--pace <name>', 'step times of tiny: real, or a cost profile to stretch them to (default: real)')
    .option(
      '--speed <x>',
      'speed relative to the cost profile; max: as fast as this machine can (default: 1)',
      speed,
    )
    .option(
      '--data-parallel-size <n>',
      'engines behind this URL, each with its own blocks and caches; the X-data-parallel-rank header selects one',
      wholeNumber(1, 64),
      1,
    )
    .option('--blocks <n>', 'KV blocks per engine', wholeNumber(1, 2 ** 24), 4096)
    .option('--block-size <tokens>', 'tokens per KV block', wholeNumber(1, 1024), 16)
    .option('--max-num-seqs <n>', 'maximum number of sequences per step', wholeNumber(1, 65_536), 256)
    .option(
      '--max-num-batched-tokens <n>',
      'maximum number of tokens per step; longer prompts are prefilled in chunks (default: 2048, for tiny 256)',
      wholeNumber(1, 2 ** 24),
    )
    .option(
      '--max-model-len <tokens>',
      'maximum length of prompt plus output (default: 32768, for tiny the model’s maximum; never more than --blocks can hold)',
      wholeNumber(2, 2 ** 28),
    )
    .option('--no-prefix-caching', 'disable prefix caching')
    .option(
      '--model <name>',
      'replay: model name for clients; tiny: model folder (default: the trace’s model; for tiny models/tiny6)',
    )
    .option(
      '--served-model-name <name>',
      'model name for clients (default: --model, for tiny the name of its folder)',
    )
    .option('--lease-ms <ms>', 'how long to keep blocks for a silent decode worker', milliseconds, 30_000)
    .option(
      '--recent-half-life <tokens>',
      'also hand off recent counts with this half-life',
      wholeNumber(1, 177),
    )
    .option('--enable-prompt-tokens-details', 'report prompt tokens from the prefix cache in usage')
    .option('--client-stall-ms <ms>', 'how long a client may stop reading its stream', milliseconds, 60_000)
    .option(
      '--grace-ms <ms>',
      'how long running requests may continue after SIGTERM',
      wholeNumber(0, 2 ** 31 - 1),
      5_000,
    )
    .addOption(
      new Option('--log-level <level>', 'minimum level of logged messages')
        .choices(['silent', 'error', 'warn', 'info', 'debug'])
        .default('info'),
    )
    .option('--json-ready', 'print the ready message as one line of JSON')
    .addHelpText(
      'after',
      `
Examples:
  eldr worker --port 8000
  eldr worker --role prefill --port 8100 --kv-port 5600
  eldr worker --role decode --port 8101
  eldr worker --backend tiny --pace h200-first
  eldr serve --port 8080 --prefill http://127.0.0.1:8100 --decode http://127.0.0.1:8101`,
    )
    .action(async (flags: WorkerFlags) => (await import('./worker-action.ts')).workerAction(flags))
}

function speed(text: string): number {
  if (text === 'max') return Infinity
  try {
    return positiveNumber(text)
  } catch {
    throw new InvalidArgumentError('Expected a number above 0 in plain digits, such as 2.5, or max.')
  }
}
