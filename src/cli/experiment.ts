import { type Command, Option } from 'commander'
import { POLICIES } from '../policy/decode-policy.ts'
import { nameSequence, positiveNumber, wholeNumber } from './options.ts'

export interface ExperimentFlags {
  readonly url: string
  readonly policies: readonly string[]
  readonly slot: number
  readonly washout: number
  readonly slots: number
  readonly lease: number
  readonly seed?: number
  readonly json?: true | string
  readonly adminToken?: string
  readonly insecure?: true
  readonly quiet?: true
}

export function addExperiment(program: Command): void {
  program
    .command('experiment')
    .summary('compare policies on live traffic by switching a gateway between them')
    .description(
      'Switches a running gateway between policies in slots of random order and compares TPOT, TTFT and throughput with 95 % confidence intervals over blocks of slots. A split by request would mislead, because policies share batches. It sends no requests: it measures the traffic that the gateway has. The gateway restores its policy when the experiment ends, also if this command is killed.',
    )
    .requiredOption('--url <url>', 'base URL of the gateway, such as http://127.0.0.1:8000')
    .option(
      '--policies <list>',
      `policies to compare: ${POLICIES.join(', ')}; eldr@0.2 sets τ; the first is the base; the same one twice shows what chance does`,
      nameSequence,
      ['jsq', 'union'],
    )
    .option(
      '--slot <s>',
      'length of a slot, in seconds; several times as long as a request',
      positiveNumber,
      60,
    )
    .option(
      '--washout <s>',
      'first part of each slot that is not measured, in seconds; as long as most requests',
      positiveNumber,
      15,
    )
    .option(
      '--slots <n>',
      'number of slots; a multiple of the number of policies',
      wholeNumber(4, 10_000),
      40,
    )
    .option(
      '--lease <s>',
      'the gateway restores its policy if this command is silent for so long, in seconds',
      positiveNumber,
      10,
    )
    .option('--seed <n>', 'random seed of the order of slots (default: random)', wholeNumber(0, 2 ** 40))
    .option('--json [file]', 'print the results as JSON, or write them to a file')
    .addOption(
      new Option('--admin-token <token>', 'token for the gateway’s admin API').env('ELDR_ADMIN_TOKEN'),
    )
    .option('--insecure', 'accept TLS certificates that cannot be verified')
    .option('-q, --quiet', 'print no progress')
    .addHelpText(
      'after',
      `
Examples:
  eldr experiment --url http://127.0.0.1:8000 --policies jsq,union --slot 60 --washout 15 --slots 40
  eldr experiment --url http://127.0.0.1:8000 --policies union,eldr,band --slots 60 --json result.json`,
    )
    .action(async (flags: ExperimentFlags) =>
      (await import('./experiment-action.ts')).experimentAction(flags),
    )
}
