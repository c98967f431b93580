import type { Command } from 'commander'
import { InvalidArgumentError, Option } from 'commander'
import { POLICIES } from '../policy/decode-policy.ts'
import { wholeNumber } from './options.ts'

export interface SimulateFlags {
  readonly trace: string
  readonly artifact?: string
  readonly topology: string
  readonly policies: readonly string[]
  readonly rates: readonly number[]
  readonly seeds: number
  readonly requests: number
  readonly profile: string
  readonly arrivals: 'poisson' | 'gamma' | 'on_off'
  readonly rows: 'passes' | 'replacement'
  readonly json?: true
  readonly quiet?: true
}

export function addSimulate(program: Command): void {
  program
    .command('simulate')
    .summary('what policies would give on a cluster, from a trace and a cost profile')
    .description(
      'Replays the recorded experts of an evaluation trace on a simulated cluster under several policies and rates. What a decode step takes comes from a cost profile; all policies see the same requests at the same times.',
    )
    .requiredOption('--trace <file>', 'evaluation trace with decode_expert_ids')
    .option('--artifact <file>', 'artifact of a fit; eldr and domain need it, union predicts better with it')
    .option('--topology <text>', 'such as 8P16D, 16D (decode alone) or 2P8D×EP4', '8P16D')
    .option('--policies <list>', `of ${POLICIES.join(', ')}; eldr@0.2 sets the band`, list, ['jsq', 'eldr', 'union'])
    .option('--rates <list>', 'requests a second', rates, [60, 100, 150])
    .option('--seeds <n>', 'runs of each, for the confidence interval', wholeNumber(1, 100), 3)
    .option('--requests <n>', 'requests of a run', wholeNumber(10, 10_000_000), 4000)
    .option('--profile <name>', 'cost profile: a name under profiles/ or a path', 'h200-first')
    .addOption(new Option('--arrivals <kind>', 'how requests come').choices(['poisson', 'gamma', 'on_off']).default('poisson'))
    .addOption(new Option('--rows <how>', 'how recorded requests are drawn').choices(['passes', 'replacement']).default('passes'))
    .option('--json', 'print the results as JSON')
    .option('-q, --quiet', 'no progress')
    .action(async (flags: SimulateFlags) => (await import('./simulate-action.ts')).simulateAction(flags))
}

function list(text: string): string[] {
  const names = text.split(',').map(name => name.trim())
  if (names.includes('') || new Set(names).size < names.length)
    throw new InvalidArgumentError('Expected different names with commas between them.')
  return names
}

function rates(text: string): number[] {
  const values = list(text).map(item => (/^\d{1,7}(\.\d{1,6})?$/.test(item) ? Number(item) : NaN))
  if (values.every(value => value > 0)) return values
  throw new InvalidArgumentError('Expected rates above 0 with commas between them.')
}
