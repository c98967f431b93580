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
    .summary('clusters for another number of workers, from an artifact alone')
    .description(
      'Clusters the calibration requests that the artifact holds for another number of workers. The signature stays; workers that stay keep the region closest to their own.',
    )
    .argument('<artifact>', 'artifact of a fit (.safetensors)')
    .requiredOption('-k, --workers <n>', 'decode workers: one cluster each', wholeNumber(1, MAX_WORKERS))
    .requiredOption('-o, --out <file>', 'artifact to write; may be the same file')
    .addOption(
      new Option('--balance <how>', 'as in fit (default: as the artifact was fitted)').choices([
        'exact',
        'none',
      ]),
    )
    .option('--restarts <n>', 'as in fit (default: as the artifact was fitted)', wholeNumber(1, 10_000))
    .option('--seed <n>', 'as in fit (default: as the artifact was fitted)', wholeNumber(0, 2 ** 48))
    .option('--ranks <n>', 'also place experts on this many expert-parallel ranks', wholeNumber(1, 65_536))
    .option('--batch <n>', 'requests in a decode step, for the placement', wholeNumber(1, 1_000_000), 32)
    .option('--placement-out <file>', 'placement to write (default: beside the artifact)')
    .option('--json', 'print the result as JSON')
    .option('-q, --quiet', 'no progress')
    .action(async (artifact: string, flags: RefitFlags) =>
      (await import('./refit-action.ts')).refitAction(artifact, flags),
    )
}
