import type { Command } from 'commander'
import { InvalidArgumentError, Option } from 'commander'
import { POLICIES } from '../policy/decode-policy.ts'
import { SCENARIOS } from '../sim/drift/scenario.ts'
import { PREFILL_POLICIES, type PrefillPolicyName } from '../policy/prefill-policy.ts'
import { nameList, positiveNumber, wholeNumber } from './options.ts'

/** Flags whose default depends on other flags, or that exclude others, are undefined if not given. */
export interface SimulateFlags {
  /** Required without `drift`. */
  readonly trace?: string
  readonly artifact?: string
  readonly drift?: readonly string[]
  readonly calibration?: string
  readonly foreign?: string
  readonly topology: string
  readonly placement?: 'linear' | 'global' | 'cluster'
  readonly policies?: readonly string[]
  readonly prefillPolicy?: PrefillPolicyName
  readonly prefixCache?: number
  readonly rates?: readonly number[]
  readonly seeds?: number
  readonly seed?: number
  readonly requests: number
  readonly profile?: string
  readonly arrivals?: 'poisson' | 'gamma' | 'on_off'
  readonly rows?: 'passes' | 'replacement'
  readonly workload?: string
  readonly maxPrompt?: number
  readonly maxOutput?: number
  readonly prompts?: readonly string[]
  readonly recordedPrompts?: string
  readonly duration?: number
  readonly warmupSeconds?: number
  readonly sloTtft?: number
  readonly sloTpot?: number
  readonly gpuHour?: number
  readonly report?: string
  readonly json?: true
  readonly quiet?: true
}

/** Values of flags that are not given; those of --drift differ. */
export const DEFAULTS = {
  policies: ['jsq', 'eldr', 'union'],
  rates: [60, 100, 150],
  seeds: 3,
  profile: 'h200-first',
} as const
export const DRIFT_DEFAULTS = {
  // On lab16: batches of about 5, 17, 30 and 44 under jsq.
  rates: [200, 400, 600, 800],
  seeds: 10,
  profile: 'h200-qwen3-30b-a3b',
} as const

/** Example price, in dollars or any other currency. */
export const GPU_HOUR = 2.5

const tokens = wholeNumber(1, 2 ** 31 - 1)

export function addSimulate(program: Command): void {
  program
    .command('simulate')
    .summary('simulate policies on a cluster, from a trace and a cost profile')
    .description(
      'Replays the recorded experts of an evaluation trace on a simulated cluster under several policies and rates. A cost profile gives the time of each decode step; requests arrive at the same times under all policies. An artifact whose number of clusters differs from the number of decode workers is refitted.',
    )
    .option('--trace <file>', 'evaluation trace with decode_expert_ids; required without --drift')
    .option(
      '--artifact <file>',
      'artifact of `eldr fit`; eldr, band and domain need it, union predicts better with it',
    )
    .option(
      '--drift <names>',
      `simulate drift scenarios and compare every policy with jsq: all, some of ${SCENARIOS.map(({ name }) => name).join(', ')}, or a JSON file of your own; artifacts are fitted`,
      nameList,
    )
    .option(
      '--calibration <file>',
      'with --drift and --trace: calibration trace of the same traffic (default: next to it, calibration for evaluation in its name)',
    )
    .option('--foreign <file>', 'with --drift and --trace: calibration trace of other traffic, for swapped')
    .option(
      '--topology <text>',
      'cluster topology, such as 8P16D, 16D (decode only), 2P8D×EP4, or 8D/4 (4 decode workers share the bandwidth of a GPU)',
      '8P16D',
    )
    .addOption(
      new Option(
        '--placement <how>',
        'placement of experts on the ranks of ×EP decode workers (default: linear)',
      ).choices(['linear', 'global', 'cluster']),
    )
    .option(
      '--policies <list>',
      `policies to simulate (default: ${DEFAULTS.policies.join(',')}; with --drift all and union@learnt): ${POLICIES.join(', ')}; eldr@0.2 sets τ; union@true, union@own and union@all predict from the recorded future, the prompt alone, or all neighbours; union@learnt, union@default and union@exact go by a learnt cost of a step, the built-in one, or that of each worker`,
      nameList,
    )
    .addOption(
      new Option(
        '--prefill-policy <name>',
        'policy that picks the prefill worker (default: prefix_hash)',
      ).choices(PREFILL_POLICIES),
    )
    .option(
      '--prefix-cache <tokens>',
      'prefix cache of each prefill worker, in tokens (default: none)',
      wholeNumber(0, 2 ** 40),
    )
    .option(
      '--rates <list>',
      `rates to simulate, in requests per second (default: ${DEFAULTS.rates.join(',')}; with --drift ${DRIFT_DEFAULTS.rates.join(',')})`,
      rates,
    )
    .option(
      '--seeds <n>',
      `runs per policy and rate, for the confidence interval (default: ${DEFAULTS.seeds}; with --drift ${DRIFT_DEFAULTS.seeds})`,
      wholeNumber(1, 100),
    )
    .option('--seed <n>', 'first seed (default: 0)', wholeNumber(0, 2 ** 32 - 1))
    .option('--requests <n>', 'requests per run', wholeNumber(10, 10_000_000), 4000)
    .option(
      '--profile <name>',
      `cost profile: a name under profiles/ or a path (default: ${DEFAULTS.profile}; with --drift ${DRIFT_DEFAULTS.profile})`,
    )
    .addOption(
      new Option('--arrivals <kind>', 'arrival process (default: poisson)').choices([
        'poisson',
        'gamma',
        'on_off',
      ]),
    )
    .addOption(
      new Option(
        '--rows <how>',
        'how to draw recorded requests: in shuffled passes, or with replacement (default: passes)',
      ).choices(['passes', 'replacement']),
    )
    .option(
      '--workload <file>',
      'take arrival times, lengths and prefixes from an Azure CSV or Mooncake JSONL file; times are rescaled to each rate',
    )
    .option('--max-prompt <tokens>', 'truncate longer prompts of the workload', tokens)
    .option('--max-output <tokens>', 'truncate longer outputs of the workload', tokens)
    .option(
      '--prompts <files>',
      'simulate the requests that eldr bench --prompts sends, with its arrival times for the same rate and seed: a file, or one per seed',
      nameList,
    )
    .option('--recorded-prompts <file>', 'with --prompts: the prompts from which the trace was recorded')
    .option('--duration <seconds>', 'with --prompts: seconds of counted requests', positiveNumber)
    .option('--warmup-seconds <seconds>', 'with --prompts: seconds before them (default: 0)', positiveNumber)
    .option('--slo-ttft <ms>', 'goodput counts only requests whose TTFT is at most this', positiveNumber)
    .option('--slo-tpot <ms>', 'goodput counts only requests whose TPOT is at most this', positiveNumber)
    .option(
      '--gpu-hour <price>',
      `price of a GPU hour, used for the cost per token (default: ${GPU_HOUR})`,
      positiveNumber,
    )
    .option('--report <file.html>', 'also write an HTML page with figures')
    .option('--json', 'print the results as JSON')
    .option('-q, --quiet', 'print no progress')
    .action(async (flags: SimulateFlags) =>
      flags.drift === undefined
        ? (await import('./simulate-action.ts')).simulateAction(flags)
        : (await import('./simulate-drift.ts')).driftAction(flags),
    )
}

export function rates(text: string): number[] {
  const values = text.split(',').map(item => (/^\d{1,7}(\.\d{1,6})?$/.test(item.trim()) ? Number(item) : NaN))
  if (values.every(value => value > 0) && new Set(values).size === values.length) return values
  throw new InvalidArgumentError(
    'Expected a comma-separated list of different rates above 0 and below 10,000,000 in plain digits.',
  )
}
