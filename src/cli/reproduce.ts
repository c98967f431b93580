import type { Command } from 'commander'
import { wholeNumber } from './options.ts'

export interface ReproduceFlags {
  readonly traces?: string
  readonly workloads?: string
  readonly out: string
  readonly profile: string
  readonly seeds: number
  readonly quick?: true
  readonly json?: true
  readonly quiet?: true
}

export function addReproduce(program: Command): void {
  program
    .command('reproduce')
    .summary('reproduce the paper’s tables and figures from traces')
    .description(
      'Fits and simulates every result of the paper that a trace can reproduce, plus additional experiments, and writes results.json and results.html with our values next to the paper’s. The shipped traces are a subset; with them the command takes a minute or two.',
    )
    .option(
      '--traces <folder>',
      'folder with lab16-{task,lang}.{calibration,evaluation}.safetensors (default: the shipped traces)',
    )
    .option('--workloads <folder>', 'folder with recorded arrivals to run as well: Azure 2023 and Mooncake')
    .option('-o, --out <folder>', 'folder for the results; created if missing', 'eldr-out')
    .option('--profile <name>', 'cost profile: a name under profiles/ or a path', 'h200-first')
    .option('--seeds <n>', 'runs per setting, for the confidence interval', wholeNumber(1, 100), 3)
    .option('--quick', 'only the main figures at two loads; takes seconds')
    .option('--json', 'print the results as JSON')
    .option('-q, --quiet', 'print no progress')
    .action(async (flags: ReproduceFlags) => (await import('./reproduce-action.ts')).reproduceAction(flags))
}
