import type { Command } from 'commander'
import { Option } from 'commander'
import { MAX_WORKERS, wholeNumber } from './options.ts'

export interface RefitFlags {
  readonly workers: number
  readonly out: string
  readonly balance?: 'exact' | 'none'
  readonly restarts?: number
  readonly seed?: number
  readonly ranks?: number
  readonly batch: number
  readonly placementOut?: string
  readonly json?: true
  readonly quiet?: true
}

export function addRefit(program: Command): void {
  program
    .command('refit')
    .summary('refit an artifact for another number of workers, without the trace')
    .description(
      'Clusters the calibration requests stored in the artifact again, for another number of workers. The signature does not change; each remaining worker keeps the cluster closest to its old one.',
    )
    .argument('<artifact>', 'artifact of `eldr fit` (.safetensors)')
    .requiredOption(
      '-k, --workers <n>',
      'number of decode workers; each gets one cluster',
      wholeNumber(1, MAX_WORKERS),
    )
    .requiredOption('-o, --out <file>', 'artifact to write; may be the input file')
    .addOption(
      new Option(
        '--balance <how>',
        'as in `eldr fit` (default: the value the artifact was fitted with)',
      ).choices(['exact', 'none']),
    )
    .option(
      '--restarts <n>',
      'as in `eldr fit` (default: the value the artifact was fitted with)',
      wholeNumber(1, 10_000),
    )
    .option(
      '--seed <n>',
      'as in `eldr fit` (default: the value the artifact was fitted with)',
      wholeNumber(0, 2 ** 48),
    )
    .option(
      '--ranks <n>',
      'also compute a placement of experts on this many expert-parallel ranks',
      wholeNumber(1, 65_536),
    )
    .option('--batch <n>', 'requests per decode step, used for the placement', wholeNumber(1, 1_000_000), 32)
    .option('--placement-out <file>', 'placement to write (default: next to the artifact)')
    .option('--json', 'print the result as JSON')
    .option('-q, --quiet', 'print no progress')
    .action(async (artifact: string, flags: RefitFlags) =>
      (await import('./refit-action.ts')).refitAction(artifact, flags),
    )
}
