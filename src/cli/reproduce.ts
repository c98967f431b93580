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
    .summary('the paper’s tables and figures from traces, ours beside the paper’s')
    .description(
      'Fits and simulates everything in the paper that a trace can give, and what lies beyond it, and writes results.json and results.html with every figure. The shipped traces are a cut; it takes a minute or two.',
    )
    .option(
      '--traces <folder>',
      'lab16-{task,lang}.{calibration,evaluation}.safetensors (default: those that ship)',
    )
    .option('--workloads <folder>', 'also run the recorded arrivals there: Azure 2023 and Mooncake')
    .option('-o, --out <folder>', 'where results go; made if it is not there', 'eldr-out')
    .option('--profile <name>', 'cost profile: a name under profiles/ or a path', 'h200-first')
    .option('--seeds <n>', 'runs of each setting, for the confidence interval', wholeNumber(1, 100), 3)
    .option('--quick', 'the main figures at two loads only: seconds')
    .option('--json', 'print the results as JSON')
    .option('-q, --quiet', 'no progress')
    .action(async (flags: ReproduceFlags) => (await import('./reproduce-action.ts')).reproduceAction(flags))
}
