import { type Command, Option } from 'commander'
import { POLICIES } from '../policy/decode-policy.ts'
import { positiveNumber, wholeNumber } from './options.ts'

/** What `eldr up` and `eldr demo` have in common. */
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
  /** Folder of the model of `tiny`. */
  readonly model?: string
  /** That the trace was captured of: what `tiny` is asked. */
  readonly prompts?: string
}

export interface UpFlags extends Omit<ClusterFlags, 'speed'> {
  readonly pace: 'profile' | 'real'
  readonly speed?: number
  readonly policy?: string
  /** Requests a second of the profile's time; true: what suits the cluster. */
  readonly load?: number | true
  readonly json?: true
  readonly table: boolean
}

export function addUp(program: Command): void {
  clusterOptions(program.command('up'), 8000)
    .summary('a whole cluster on this machine, no GPU: workers, gateway, live table')
    .description(
      'Starts prefill and decode workers and the gateway as processes of their own, fits an artifact if there is none, says where to point a client and shows what happens. The workers replay the experts of a recorded model, or compute a small one (--backend tiny), and their steps take the time that a cost profile gives. Ctrl-C stops everything.',
    )
    .addOption(
      new Option('--pace <pace>', 'of tiny: steps take the profile’s time, or what they really take')
        .choices(['profile', 'real'])
        .default('profile'),
    )
    .addOption(
      new Option(
        '--policy <name>',
        'decode policy to begin with (default: eldr, or union without an artifact)',
      ).choices(POLICIES),
    )
    .option(
      '--load [rate]',
      'also send requests of the trace, so many a second of the profile’s time (25 for each decode worker, 9 with tiny)',
      positiveNumber,
    )
    .option(
      '--speed <x>',
      'times as fast as the profile says (default: 1; with --load what this machine’s cores can carry)',
      positiveNumber,
    )
    .option('--json', 'an object a line: what is ready, each look at the workers, what happens to processes')
    .option('--no-table', 'say where it listens, and nothing after that but what happens to processes')
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
    .option('--prefill <n>', 'prefill workers', wholeNumber(1, 64), 2)
    .option('--decode <n>', 'decode workers', wholeNumber(1, 64), 4)
    .option('--host <host>', 'address that the gateway listens on', '127.0.0.1')
    .option('--port <n>', 'port of the gateway; 0 takes any that is free', wholeNumber(0, 65_535), port)
    .addOption(
      new Option('--backend <name>', 'what the workers compute: the experts of a trace, or a small model')
        .choices(['replay', 'tiny'])
        .default('replay'),
    )
    .option('--model <folder>', 'the model of tiny (default: models/tiny6)')
    .option(
      '--trace <file>',
      'evaluation trace that the workers replay, or one of the model of tiny (default: one that ships)',
    )
    .option(
      '--prompts <file.jsonl>',
      'what tiny is asked: the prompts that its trace was captured of (default: those that ship)',
    )
    .option(
      '--artifact <file>',
      'artifact to route by (default: fitted from the calibration trace beside it, kept in eldr-out/)',
    )
    .option('--profile <name>', 'cost profile of a step: a name under profiles/ or a path', 'h200-first')
    .option('--seed <n>', 'of the load', wholeNumber(0, 2 ** 40), 0)
    .option('--verbose', 'show what the processes log')
}
