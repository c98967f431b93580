import type { Command } from 'commander'
import { InvalidArgumentError } from 'commander'
import { POLICIES } from '../policy/decode-policy.ts'
import { nameList, positiveNumber, wholeNumber } from './options.ts'

export interface StalenessFlags {
  readonly trace: string
  readonly artifact?: string
  readonly topology: string
  readonly policies: readonly string[]
  readonly gateways: readonly number[]
  /** Default: DEFAULT_AGES. */
  readonly viewAges?: readonly (number | null)[]
  readonly rate: number
  readonly seeds: number
  readonly requests: number
  readonly profile: string
  readonly json?: true
  readonly quiet?: true
}

/** As typed by a user. Not a commander default, because help would print it as JSON, with null for never. */
export const DEFAULT_AGES = '5,20,100,never'

export function addStaleness(program: Command): void {
  program
    .command('staleness')
    .summary('simulate several gateways that see each other’s requests late or never')
    .description(
      'Simulates several gateways in front of the same decode workers. Each sees its own requests immediately and those of the others after a delay, or never. Compares TPOT and imbalance with a single gateway that sees all requests, with and without an estimate of the requests not yet seen.',
    )
    .requiredOption('--trace <file>', 'evaluation trace with decode_expert_ids')
    .option(
      '--artifact <file>',
      'artifact of `eldr fit`; eldr and domain need it, union predicts better with it',
    )
    .option('--topology <text>', 'cluster topology, such as 2P8D or 16D (decode only)', '2P8D')
    .option('--policies <list>', `policies to simulate: ${POLICIES.join(', ')}`, nameList, [
      'jsq',
      'eldr',
      'union',
      'power_of_two',
      'round_robin',
    ])
    .option('--gateways <list>', 'numbers of gateways to simulate', gatewayList, [2, 4, 8])
    .option(
      '--view-ages <list>',
      `delays until a gateway sees the others’ requests, in ms, or never (default: ${DEFAULT_AGES})`,
      ageList,
    )
    .option('--rate <n>', 'requests per second over all gateways', positiveNumber, 400)
    .option('--seeds <n>', 'runs per setting, for the confidence interval', wholeNumber(1, 100), 5)
    .option('--requests <n>', 'requests per run', wholeNumber(10, 10_000_000), 6000)
    .option('--profile <name>', 'cost profile: a name under profiles/ or a path', 'h200-first')
    .option('--json', 'print every run as JSON')
    .option('-q, --quiet', 'print no progress')
    .action(async (flags: StalenessFlags) => (await import('./staleness-action.ts')).stalenessAction(flags))
}

/** `2,4,8` */
export function gatewayList(text: string): number[] {
  const counts = text.split(',').map(item => (/^\d{1,4}$/.test(item.trim()) ? Number(item) : NaN))
  if (counts.every(count => count >= 2 && count <= 1024) && new Set(counts).size === counts.length)
    return counts
  throw new InvalidArgumentError('Expected a comma-separated list of different whole numbers from 2 to 1024.')
}

/** `5,20.5,never` */
export function ageList(text: string): (number | null)[] {
  const ages = text.split(',').map(item => {
    const word = item.trim()
    return word === 'never' ? null : /^\d{1,6}(\.\d{1,3})?$/.test(word) ? Number(word) : NaN
  })
  if (!ages.some(Number.isNaN) && new Set(ages).size === ages.length) return ages
  throw new InvalidArgumentError(
    'Expected a comma-separated list of different milliseconds from 0 to below 1,000,000, or never.',
  )
}
