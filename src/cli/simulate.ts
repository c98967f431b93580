import type { Command } from 'commander'
import { InvalidArgumentError, Option } from 'commander'
import { POLICIES } from '../policy/decode-policy.ts'
import { PREFILL_POLICIES, type PrefillPolicyName } from '../policy/prefill-policy.ts'
import { nameList, positiveNumber, wholeNumber } from './options.ts'

/** What has a default that depends on other flags, or must not come with them, is absent unless given. */
export interface SimulateFlags {
  readonly trace: string
  readonly artifact?: string
  readonly topology: string
  readonly placement?: 'linear' | 'global' | 'cluster'
  readonly policies: readonly string[]
  readonly prefillPolicy?: PrefillPolicyName
  readonly prefixCache?: number
  readonly rates: readonly number[]
  readonly seeds: number
  readonly requests: number
  readonly profile: string
  readonly arrivals?: 'poisson' | 'gamma' | 'on_off'
  readonly rows: 'passes' | 'replacement'
  readonly workload?: string
  readonly maxPrompt?: number
  readonly maxOutput?: number
  readonly sloTtft?: number
  readonly sloTpot?: number
  readonly gpuHour?: number
  readonly report?: string
  readonly json?: true
  readonly quiet?: true
}

/** Dollars, or whatever the reader pays in. */
export const GPU_HOUR = 2.5

const tokens = wholeNumber(1, 2 ** 31 - 1)

export function addSimulate(program: Command): void {
  program
    .command('simulate')
    .summary('what policies would give on a cluster, from a trace and a cost profile')
    .description(
      'Replays the recorded experts of an evaluation trace on a simulated cluster under several policies and rates. What a decode step takes comes from a cost profile; requests come at the same times under all policies. An artifact with another number of clusters than there are decode workers is re-fitted to theirs.',
    )
    .requiredOption('--trace <file>', 'evaluation trace with decode_expert_ids')
    .option('--artifact <file>', 'artifact of a fit; eldr and domain need it, union predicts better with it')
    .option('--topology <text>', 'such as 8P16D, 16D (decode alone) or 2P8D×EP4', '8P16D')
    .addOption(
      new Option('--placement <how>', 'of experts on the ranks of ×EP decoders (default: linear)').choices([
        'linear',
        'global',
        'cluster',
      ]),
    )
    .option(
      '--policies <list>',
      `of ${POLICIES.join(', ')}; eldr@0.2 sets the band, union@true, @own and @all another prediction: the truth, the prompt alone, all neighbours`,
      nameList,
      ['jsq', 'eldr', 'union'],
    )
    .addOption(
      new Option('--prefill-policy <name>', 'which worker reads a prompt (default: prefix_hash)').choices(
        PREFILL_POLICIES,
      ),
    )
    .option(
      '--prefix-cache <tokens>',
      'prompt tokens that each prefill worker keeps (default: none)',
      wholeNumber(0, 2 ** 40),
    )
    .option('--rates <list>', 'requests a second', rates, [60, 100, 150])
    .option('--seeds <n>', 'runs of each, for the confidence interval', wholeNumber(1, 100), 3)
    .option('--requests <n>', 'requests of a run', wholeNumber(10, 10_000_000), 4000)
    .option('--profile <name>', 'cost profile: a name under profiles/ or a path', 'h200-first')
    .addOption(
      new Option('--arrivals <kind>', 'how requests come (default: poisson)').choices([
        'poisson',
        'gamma',
        'on_off',
      ]),
    )
    .addOption(
      new Option('--rows <how>', 'how recorded requests are drawn')
        .choices(['passes', 'replacement'])
        .default('passes'),
    )
    .option(
      '--workload <file>',
      'arrivals, lengths and prefixes of an Azure CSV or Mooncake JSONL file, stretched so that the run as a whole has each rate',
    )
    .option('--max-prompt <tokens>', 'cuts longer prompts of the workload', tokens)
    .option('--max-output <tokens>', 'cuts longer outputs of the workload', tokens)
    .option('--slo-ttft <ms>', 'goodput counts requests whose first token came in time', positiveNumber)
    .option('--slo-tpot <ms>', 'and whose other tokens took no longer than this each', positiveNumber)
    .option(
      '--gpu-hour <price>',
      `price of a GPU-hour, for the cost of tokens (default: ${GPU_HOUR})`,
      positiveNumber,
    )
    .option('--report <file.html>', 'also write a page with figures')
    .option('--json', 'print the results as JSON')
    .option('-q, --quiet', 'no progress')
    .action(async (flags: SimulateFlags) => (await import('./simulate-action.ts')).simulateAction(flags))
}

export function rates(text: string): number[] {
  const values = text.split(',').map(item => (/^\d{1,7}(\.\d{1,6})?$/.test(item.trim()) ? Number(item) : NaN))
  if (values.every(value => value > 0) && new Set(values).size === values.length) return values
  throw new InvalidArgumentError(
    'Expected different rates above 0 and below 10,000,000 in plain digits, with commas between them.',
  )
}
