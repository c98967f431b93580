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
  /** Absent: DEFAULT_AGES. */
  readonly viewAges?: readonly (number | null)[]
  readonly rate: number
  readonly seeds: number
  readonly requests: number
  readonly profile: string
  readonly json?: true
  readonly quiet?: true
}

/** As one would write it: help shows a default of its own as JSON, where never is null. */
export const DEFAULT_AGES = '5,20,100,never'

export function addStaleness(program: Command): void {
  program
    .command('staleness')
    .summary('what it costs when several gateways see each other’s requests late, or never')
    .description(
      'Simulates several gateways before the same decode workers. Each sees its own requests at once and those of the others some time later, or never. Shows TPOT and imbalance beside one gateway that sees all, without and with supposing what has not been heard of yet.',
    )
    .requiredOption('--trace <file>', 'evaluation trace with decode_expert_ids')
    .option('--artifact <file>', 'artifact of a fit; eldr and domain need it, union predicts better with it')
    .option('--topology <text>', 'such as 2P8D or 16D (decode alone)', '2P8D')
    .option('--policies <list>', `of ${POLICIES.join(', ')}`, nameList, [
      'jsq',
      'eldr',
      'union',
      'power_of_two',
      'round_robin',
    ])
    .option('--gateways <list>', 'numbers of gateways', gatewayList, [2, 4, 8])
    .option(
      '--view-ages <list>',
      `milliseconds until a gateway hears of the others, or never (default: ${DEFAULT_AGES})`,
      ageList,
    )
    .option('--rate <n>', 'requests a second, to all gateways together', positiveNumber, 400)
    .option('--seeds <n>', 'runs of each, for the confidence interval', wholeNumber(1, 100), 5)
    .option('--requests <n>', 'requests of a run', wholeNumber(10, 10_000_000), 6000)
    .option('--profile <name>', 'cost profile: a name under profiles/ or a path', 'h200-first')
    .option('--json', 'print every run as JSON')
    .option('-q, --quiet', 'no progress')
    .action(async (flags: StalenessFlags) => (await import('./staleness-action.ts')).stalenessAction(flags))
}

/** `2,4,8` */
export function gatewayList(text: string): number[] {
  const counts = text.split(',').map(item => (/^\d{1,4}$/.test(item.trim()) ? Number(item) : NaN))
  if (counts.every(count => count >= 2 && count <= 1024) && new Set(counts).size === counts.length)
    return counts
  throw new InvalidArgumentError('Expected different whole numbers from 2 to 1024 with commas between them.')
}

/** `5,20.5,never` */
export function ageList(text: string): (number | null)[] {
  const ages = text.split(',').map(item => {
    const word = item.trim()
    return word === 'never' ? null : /^\d{1,6}(\.\d{1,3})?$/.test(word) ? Number(word) : NaN
  })
  if (!ages.some(Number.isNaN) && new Set(ages).size === ages.length) return ages
  throw new InvalidArgumentError(
    'Expected different milliseconds from 0 below 1,000,000, or never, with commas between them.',
  )
}
