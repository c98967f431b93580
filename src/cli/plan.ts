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
    .summary('estimate the rate, GPUs and money that expert-aware routing saves under an SLO')
    .description(
      'Finds the highest request rate at which each policy meets the SLO on a simulated cluster and, for a given rate, the fewest decode workers that meet it. Reports the savings in GPUs and money, and says when expert-aware routing does not help. The SLO applies to 99th percentiles, averaged over the seeds.',
    )
    .requiredOption('--trace <file>', 'evaluation trace with decode_expert_ids')
    .option('--artifact <file>', 'artifact of `eldr fit`; refitted for each number of decode workers tried')
    .option('--topology <text>', 'cluster topology, such as 8P16D, 16D (decode only) or 2P8D×EP4', '8P16D')
    .requiredOption('--slo-tpot <ms>', 'limit for p99 TPOT, in ms', positiveNumber)
    .option('--slo-ttft <ms>', 'limit for p99 TTFT, in ms; needs prefill workers', positiveNumber)
    .option(
      '--rate <n>',
      'also find the fewest decode workers for this many requests per second',
      positiveNumber,
    )
    .option(
      '--policies <list>',
      `policies to compare: ${POLICIES.join(', ')}; at least one must be a load balancer`,
      nameList,
      ['jsq', 'eldr', 'union'],
    )
    .option('--profile <name>', 'cost profile: a name under profiles/ or a path', 'h200-first')
    .option('--gpu-hour <price>', `price of a GPU hour (default: ${GPU_HOUR}, an example)`, positiveNumber)
    .option('--seeds <n>', 'runs per rate and policy', wholeNumber(1, 100), 3)
    .option(
      '--requests <n>',
      'requests per run; raised where these do not fill the workers',
      wholeNumber(10, 10_000_000),
      3000,
    )
    .option('--report <file.html>', 'also write an HTML page with figures')
    .option('--json', 'print the plan as JSON')
    .option('-q, --quiet', 'print no progress')
    .action(async (flags: PlanFlags) => (await import('./plan-action.ts')).planAction(flags))
}
