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
  /** `real`, or a cost profile. */
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
/** What a timer can hold. */
const milliseconds = wholeNumber(1, 2 ** 31 - 1)

export function addWorker(program: Command): void {
  program
    .command('worker')
    .summary('run a prefill or decode worker without a GPU')
    .description(
      'Speaks vLLM’s HTTP and hands KV blocks from prefill to decode as its NIXL connector does. The replay back end takes experts from a trace and the time of each step from a cost profile; the tiny one computes a small mixture-of-experts model on this processor. Scheduler, KV blocks and caches are real with both.',
    )
    .addOption(
      new Option('--role <role>', 'which leg it serves')
        .choices(['prefill', 'decode', 'both'])
        .default('both'),
    )
    .option('--host <host>', 'address to listen on', '127.0.0.1')
    .option('--port <n>', 'port of the HTTP server; 0 takes any that is free', port, 8000)
    .option('--kv-port <n>', 'port that decode workers read KV blocks from; 0 takes any', port, 0)
    .option('--kv-host <host>', 'name that they reach it by (default: --host)')
    .addOption(
      new Option('--backend <name>', 'what computes the steps').choices(['replay', 'tiny']).default('replay'),
    )
    .option('--trace <file>', 'evaluation trace to replay (default: the lab16 task trace that ships)')
    .option(
      '--profile <name>',
      'cost profile of replay: a name under profiles/ or a path (default: h200-first)',
    )
    .option(
      '--pace <name>',
      'how long steps of tiny take: real, or a cost profile to stretch them to (default: real)',
    )
    .option(
      '--speed <x>',
      'times as fast as the profile says; max: as fast as this machine can (default: 1)',
      speed,
    )
    .option(
      '--data-parallel-size <n>',
      'engines behind this URL, each with blocks and caches of its own; X-data-parallel-rank names one',
      wholeNumber(1, 64),
      1,
    )
    .option('--blocks <n>', 'KV blocks of an engine', wholeNumber(1, 2 ** 24), 4096)
    .option('--block-size <tokens>', 'tokens of a KV block', wholeNumber(1, 1024), 16)
    .option('--max-num-seqs <n>', 'sequences of a step', wholeNumber(1, 65_536), 256)
    .option(
      '--max-num-batched-tokens <n>',
      'tokens of a step: longer prompts are read in chunks (default: 2048, of tiny 256)',
      wholeNumber(1, 2 ** 24),
    )
    .option(
      '--max-model-len <tokens>',
      'of prompt and answer together (default: 32768, of tiny the model’s positions, or what the blocks hold)',
      wholeNumber(2, 2 ** 28),
    )
    .option('--no-prefix-caching', 'do not keep blocks of finished requests')
    .option(
      '--model <name>',
      'of replay: as clients call it (default: the trace’s); of tiny: the model’s folder (default: models/tiny6)',
    )
    .option(
      '--served-model-name <name>',
      'as clients call it (default: --model, of tiny the name of its folder)',
    )
    .option(
      '--lease-ms <ms>',
      'how long blocks are kept for a decode worker that says nothing',
      milliseconds,
      30_000,
    )
    .option(
      '--recent-half-life <tokens>',
      'also hand off recent counts of this half-life',
      wholeNumber(1, 177),
    )
    .option('--enable-prompt-tokens-details', 'usage says how many prompt tokens came from the prefix cache')
    .option(
      '--client-stall-ms <ms>',
      'how long a client may take nothing of its stream',
      milliseconds,
      60_000,
    )
    .option(
      '--grace-ms <ms>',
      'how long requests may go on after SIGTERM',
      wholeNumber(0, 2 ** 31 - 1),
      5_000,
    )
    .addOption(
      new Option('--log-level <level>', 'what is logged')
        .choices(['silent', 'error', 'warn', 'info', 'debug'])
        .default('info'),
    )
    .option('--json-ready', 'say that it is ready as one line of JSON')
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
