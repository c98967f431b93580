import type { Command } from 'commander'
import { Option } from 'commander'
import type { FitOptions } from '../fit/fit.ts'
import { layerList, MAX_WORKERS, transformName, wholeNumber } from './options.ts'

interface Flags extends FitOptions {
  readonly out: string
  readonly placementOut?: string
  readonly report?: string
  readonly json?: true
  readonly quiet?: true
}

export function addFit(program: Command): void {
  program
    .command('fit')
    .summary('fit a routing artifact from a calibration trace')
    .description(
      'Chooses the signature with the best quality ρ, clusters the calibration requests into one balanced cluster per decode worker, and writes the artifact that the gateway loads.',
    )
    .argument('<trace>', 'calibration trace (.safetensors)')
    .requiredOption(
      '-k, --workers <n>',
      'number of decode workers; each gets one cluster',
      wholeNumber(1, MAX_WORKERS),
    )
    .requiredOption('-o, --out <file>', 'artifact to write')
    .option(
      '--transform <name>',
      'signature transform; auto takes the best by ρ that a hand-off can carry, count-idf is the paper’s',
      transformName,
      'auto',
    )
    .option(
      '--layers <which>',
      'layers of the signature: auto (greedy on ρ), all, or a list such as 0,3,8-11',
      layerList,
      'auto',
    )
    .addOption(
      new Option('--balance <how>', 'exact: at most ⌈N/K⌉ requests per cluster; none: plain K-means')
        .choices(['exact', 'none'])
        .default('exact'),
    )
    .option('--restarts <n>', 'K-means runs; the best one is kept', wholeNumber(1, 10_000), 3)
    .option('--pairs <n>', 'request pairs used to measure ρ', wholeNumber(3, 2 ** 32), 20_000)
    .option(
      '--seed <n>',
      'random seed; the same trace, options and seed give the same bytes',
      wholeNumber(0, 2 ** 48),
      0,
    )
    .option(
      '--ranks <n>',
      'also compute a placement of experts on this many expert-parallel ranks',
      wholeNumber(1, 65_536),
    )
    .option('--batch <n>', 'requests per decode step, used for the placement', wholeNumber(1, 1_000_000), 32)
    .option('--placement-out <file>', 'placement to write (default: next to the artifact)')
    .option('--report <file.html>', 'also write an HTML page with figures')
    .option('--json', 'print the result as JSON')
    .option('-q, --quiet', 'print no progress')
    .action(async (trace: string, flags: Flags) => (await import('./fit-action.ts')).fitAction(trace, flags))
}

export type { Flags as FitFlags }
