import { type Command } from 'commander'
import { positiveNumber } from './options.ts'
import { clusterOptions, type ClusterFlags } from './up.ts'

export interface DemoFlags extends Omit<ClusterFlags, 'speed'> {
  readonly speed?: number
  readonly rate?: number
  readonly seconds?: number
  readonly report: string
  readonly json?: true
  readonly quiet?: true
}

export function addDemo(program: Command): void {
  clusterOptions(program.command('demo'), 0)
    .option(
      '--speed <x>',
      'speed relative to the cost profile (default: 1, or less if this machine has too few cores)',
      positiveNumber,
    )
    .summary('compare round_robin, eldr and union on a live cluster in a minute or two')
    .description(
      'Starts a cluster as `eldr up` does and sends it the same load under round_robin, eldr and union: the same requests at the same times, with caches cleared in between. Prints measured and simulated results side by side and writes an HTML page with a figure. With --backend tiny the workers compute a small model on real prompts. The command fails if any response differs between policies, even by one byte.',
    )
    .option(
      '--rate <n>',
      'requests per second of profile time (default: 25 per decode worker, 9 with tiny)',
      positiveNumber,
    )
    .option('--seconds <s>', 'seconds of load per policy (default: 24, 30 with tiny)', positiveNumber)
    .option('--report <file.html>', 'HTML page to write', 'eldr-out/demo.html')
    .option('--json', 'print the result as JSON')
    .option('-q, --quiet', 'print no progress')
    .addHelpText(
      'after',
      `
Examples:
  eldr demo
  eldr demo --backend tiny
  eldr demo --decode 8 --speed 0.5 --seconds 25
  eldr demo --trace data/lab16-lang.evaluation.safetensors --json`,
    )
    .action(async (flags: DemoFlags) => (await import('./demo-action.ts')).demoAction(flags))
}
