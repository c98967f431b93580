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
      'times as fast as the profile says (default: 1, or what this machine’s cores can carry)',
      positiveNumber,
    )
    .summary('the story in a minute or two: round_robin, eldr and union on a live cluster')
    .description(
      'Starts a cluster as `eldr up` does and gives it the same load under round_robin, eldr and union: the same requests at the same moments, caches cleared in between. Ends in a table of what was measured beside what the simulator says, and a page with a figure. With --backend tiny a small model is computed and asked real prompts. Every answer must be the same, byte for byte, under every policy; otherwise the command fails.',
    )
    .option(
      '--rate <n>',
      'requests a second, of the profile’s time (default: 25 for each decode worker, 9 with tiny)',
      positiveNumber,
    )
    .option('--seconds <s>', 'of load under each policy (default: 24, 30 with tiny)', positiveNumber)
    .option('--report <file.html>', 'where the page goes', 'eldr-out/demo.html')
    .option('--json', 'print the result as JSON')
    .option('-q, --quiet', 'no progress')
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
