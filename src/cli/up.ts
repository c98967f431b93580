import { type Command, Option } from 'commander'
import { DEFAULT_POLICY, POLICIES } from '../policy/decode-policy.ts'
import { positiveNumber, wholeNumber } from './options.ts'

/** Flags shared by `eldr up` and `eldr demo`. */
export interface ClusterFlags {
  readonly prefill: number
  readonly decode: number
  readonly host: string
  readonly port: number
  readonly trace?: string
  readonly artifact?: string
  readonly profile: string
  readonly speed: number
  readonly seed: number
  readonly verbose?: true
  readonly backend: 'replay' | 'tiny'
  /** Model folder of the `tiny` back end. */
  readonly model?: string
  /** Prompts that the trace was captured from; the load of the `tiny` back end. */
  readonly prompts?: string
}

export interface UpFlags extends Omit<ClusterFlags, 'speed'> {
  readonly pace: 'profile' | 'real'
  readonly speed?: number
  readonly policy?: string
  readonly shadow?: readonly string[]
  /** Requests per second of profile time; true: a rate that suits the cluster. */
  readonly load?: number | true
  readonly json?: true
  readonly table: boolean
}

export function addUp(program: Command): void {
  clusterOptions(program.command('up'), 8000)
    .summary('start a whole cluster on this machine without a GPU: workers, gateway, live table')
    .description(
      'Starts prefill workers, decode workers and the gateway, each in its own process. Fits an artifact if there is none, prints the URL for clients and shows a live table. The workers replay the experts of a recorded model, or compute a small model (--backend tiny); a cost profile gives the time of each step. Ctrl-C stops everything.',
    )
    .addOption(
      new Option('--pace <pace>', 'step times of tiny: from the cost profile, or the real compute time')
        .choices(['profile', 'real'])
        .default('profile'),
    )
    .addOption(
      new Option('--policy <name>', `initial decode policy (default: ${DEFAULT_POLICY})`).choices(POLICIES),
    )
    .addOption(
      new Option('--shadow <policy...>', 'policies that decide beside it and enforce nothing').choices(
        POLICIES,
      ),
    )
    .option(
      '--load [rate]',
      'also send requests of the trace at this rate per second of profile time (without a value: 25 per decode worker, 9 with tiny)',
      positiveNumber,
    )
    .option(
      '--speed <x>',
      'speed relative to the cost profile (default: 1; with --load less if this machine has too few cores)',
      positiveNumber,
    )
    .option('--json', 'print one JSON object per line: ready, each view of the workers, process events')
    .option('--no-table', 'print no live table, only the URL and process events')
    .addHelpText(
      'after',
      `
Examples:
  eldr up
  eldr up --load
  eldr up --backend tiny --prefill 1 --decode 2
  eldr up --prefill 2 --decode 8 --policy union --port 9000
  curl -X PUT http://127.0.0.1:8000/eldr/policy -d '{"policy": "round_robin"}'`,
    )
    .action(async (flags: UpFlags) => (await import('./up-action.ts')).upAction(flags))
}

export function clusterOptions(command: Command, port: number): Command {
  return command
    .option('--prefill <n>', 'number of prefill workers', wholeNumber(1, 64), 2)
    .option('--decode <n>', 'number of decode workers', wholeNumber(1, 64), 4)
    .option('--host <host>', 'listen address of the gateway', '127.0.0.1')
    .option('--port <n>', 'port of the gateway; 0 picks a free port', wholeNumber(0, 65_535), port)
    .addOption(
      new Option('--backend <name>', 'back end of the workers: replay a trace, or compute a tiny model')
        .choices(['replay', 'tiny'])
        .default('replay'),
    )
    .option('--model <folder>', 'model folder of the tiny back end (default: models/tiny6)')
    .option(
      '--trace <file>',
      'evaluation trace to replay; with tiny, a trace of its model (default: a shipped trace)',
    )
    .option(
      '--prompts <file.jsonl>',
      'prompts to send to tiny: those its trace was captured from (default: the shipped prompts)',
    )
    .option(
      '--artifact <file>',
      'artifact for routing (default: fitted from the calibration trace next to --trace, kept in eldr-out/)',
    )
    .option('--profile <name>', 'cost profile of the steps: a name under profiles/ or a path', 'h200-first')
    .option('--seed <n>', 'random seed of the load', wholeNumber(0, 2 ** 40), 0)
    .option('--verbose', 'print the logs of the processes')
}
