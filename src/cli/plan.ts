import type { Command } from 'commander'
import { POLICIES } from '../policy/decode-policy.ts'
import { nameList, positiveNumber, wholeNumber } from './options.ts'
import { GPU_HOUR } from './simulate.ts'

export interface PlanFlags {
  readonly trace: string
  readonly artifact?: string
  readonly topology: string
  readonly sloTpot: number
  readonly sloTtft?: number
  readonly rate?: number
  readonly policies: readonly string[]
  readonly profile: string
  readonly gpuHour?: number
  readonly seeds: number
  readonly requests: number
  readonly report?: string
  readonly json?: true
  readonly quiet?: true
}

export function addPlan(program: Command): void {
  program
    .command('plan')
    .summary('what routing by experts buys: rate, GPUs and money under an SLO, or why nothing')
    .description(
      'Seeks the highest request rate at which each policy keeps the SLO on a simulated cluster and, for a given rate, the fewest decode workers that hold it. Says what that is worth in GPUs and money, and when routing by experts will not help. The SLO is on 99th percentiles, means over the seeds.',
    )
    .requiredOption('--trace <file>', 'evaluation trace with decode_expert_ids')
    .option(
      '--artifact <file>',
      'artifact of a fit; re-fitted to each number of decode workers that is tried',
    )
    .option('--topology <text>', 'such as 8P16D, 16D (decode alone) or 2P8D×EP4', '8P16D')
    .requiredOption('--slo-tpot <ms>', 'what p99 TPOT may be', positiveNumber)
    .option('--slo-ttft <ms>', 'what p99 TTFT may be; needs prefill workers', positiveNumber)
    .option('--rate <n>', 'requests a second for which the fewest decode workers are sought', positiveNumber)
    .option('--policies <list>', `of ${POLICIES.join(', ')}; a load balancer among them`, nameList, [
      'jsq',
      'eldr',
      'union',
    ])
    .option('--profile <name>', 'cost profile: a name under profiles/ or a path', 'h200-first')
    .option(
      '--gpu-hour <price>',
      `what you pay for a GPU hour (default: ${GPU_HOUR}, an example)`,
      positiveNumber,
    )
    .option('--seeds <n>', 'runs of each probe', wholeNumber(1, 100), 3)
    .option(
      '--requests <n>',
      'requests of a run; more where those would not fill the workers',
      wholeNumber(10, 10_000_000),
      3000,
    )
    .option('--report <file.html>', 'also write a page with figures')
    .option('--json', 'print the plan as JSON')
    .option('-q, --quiet', 'no progress')
    .action(async (flags: PlanFlags) => (await import('./plan-action.ts')).planAction(flags))
}
