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
    .summary('make a routing artifact from a calibration trace')
    .description(
      'Chooses a signature by its quality ρ, clusters the calibration requests, one balanced cluster for each decode worker, and writes the artifact that a gateway loads.',
    )
    .argument('<trace>', 'calibration trace (.safetensors)')
    .requiredOption('-k, --workers <n>', 'decode workers: one cluster each', wholeNumber(1, MAX_WORKERS))
    .requiredOption('-o, --out <file>', 'artifact to write')
    .option(
      '--transform <name>',
      'auto takes the best by ρ that a hand-off can carry; count-idf is the paper’s',
      transformName,
      'auto',
    )
    .option('--layers <which>', 'auto (greedy on ρ), all, or a list such as 0,3,8-11', layerList, 'auto')
    .addOption(
      new Option('--balance <how>', 'exact: at most ⌈N/K⌉ requests a cluster; none: plain K-means')
        .choices(['exact', 'none'])
        .default('exact'),
    )
    .option('--restarts <n>', 'runs of K-means, of which the best is kept', wholeNumber(1, 10_000), 3)
    .option('--pairs <n>', 'pairs of requests that ρ is measured over', wholeNumber(3, 2 ** 32), 20_000)
    .option('--seed <n>', 'the same trace, options and seed give the same bytes', wholeNumber(0, 2 ** 48), 0)
    .option('--ranks <n>', 'also place experts on this many expert-parallel ranks', wholeNumber(1, 65_536))
    .option('--batch <n>', 'requests in a decode step, for the placement', wholeNumber(1, 1_000_000), 32)
    .option('--placement-out <file>', 'placement to write (default: beside the artifact)')
    .option('--report <file.html>', 'also write a page with figures')
    .option('--json', 'print the result as JSON')
    .option('-q, --quiet', 'no progress')
    .action(async (trace: string, flags: Flags) => (await import('./fit-action.ts')).fitAction(trace, flags))
}

export type { Flags as FitFlags }
