/** Which flags of `eldr bench` may stand together: found out before anything is read or sent. */
import { EldrError } from '../errors.ts'
import type { BenchFlags } from './bench.ts'

const SWEEP_ONLY = {
  '--policies': 'policies',
  '--rates': 'rates',
  '--topology': 'topology',
  '--artifact': 'artifact',
  '--profile': 'profile',
} as const
const NOT_IN_SWEEP = {
  '--rate': 'rate',
  '--concurrency': 'concurrency',
  '--duration': 'duration',
  '--workload': 'workload',
  '--prompts': 'prompts',
  '--burstiness': 'burstiness',
  '--warmup-requests': 'warmupRequests',
  '--warmup-seconds': 'warmupSeconds',
  '--extra-body': 'extraBody',
  '--stop-at-eos': 'stopAtEos',
} as const
const LOADS = { '--rate': 'rate', '--workload': 'workload', '--concurrency': 'concurrency' } as const
const MADE_UP = {
  '--prompt-tokens': 'promptTokens',
  '--prefix-groups': 'prefixGroups',
  '--prefix-tokens': 'prefixTokens',
} as const

type Flag = keyof BenchFlags

/** Those of some flags that have a value, by their names on the command line. */
function given(flags: BenchFlags, names: Readonly<Record<string, Flag>>): string[] {
  return Object.keys(names).filter(name => flags[names[name]!] !== undefined)
}

export function checkBenchFlags(flags: BenchFlags): void {
  if (flags.url === undefined && !flags.sweep)
    throw wrong('no --url', 'the address of a server', 'Name one, such as --url http://127.0.0.1:8000.')
  const { api, promptAs } = flags
  if (api === 'chat' && promptAs === 'ids')
    throw wrong('--prompt-as ids with --api chat', 'text', 'Leave it out: a chat has no token ids.')
  if (flags.sweep) return checkSweep(flags)
  const [strange] = given(flags, SWEEP_ONLY)
  if (strange !== undefined)
    throw wrong(`${strange} without --sweep`, 'both', 'Add --sweep, or leave it out.')
  checkLoad(flags)
  checkPrompts(flags)
}

function checkLoad(flags: BenchFlags): void {
  const { rate, concurrency, workload, arrivals, burstiness } = flags
  if (given(flags, LOADS).length === 0)
    throw wrong('no load', '--rate, --workload or --concurrency', 'Say how requests come, such as --rate 10.')
  if (concurrency !== undefined && (rate !== undefined || workload !== undefined))
    throw wrong(
      `--concurrency with ${rate === undefined ? '--workload' : '--rate'}`,
      'one of them',
      'Leave one out: a loop is open or closed.',
    )
  if (arrivals !== undefined && (rate === undefined || workload !== undefined))
    throw wrong(
      '--arrivals without a --rate of its own',
      '--rate and no --workload',
      'Give a rate, or leave --arrivals out.',
    )
  if (burstiness !== undefined && arrivals !== 'gamma')
    throw wrong('--burstiness without --arrivals gamma', 'both', 'Add --arrivals gamma.')
  const [cut] = given(flags, { '--max-prompt': 'maxPrompt', '--max-output': 'maxOutput' })
  if (cut !== undefined && workload === undefined)
    throw wrong(`${cut} without --workload`, 'both', 'Name the file whose lengths are cut.')
}

function checkPrompts(flags: BenchFlags): void {
  const { prompts, trace, workload, promptTokens = 512, prefixTokens, prefixGroups, outputTokens } = flags
  if (prompts !== undefined && trace !== undefined)
    throw wrong('--prompts and --trace', 'one of them', 'Leave one out.')
  const elsewhere =
    prompts === undefined
      ? trace === undefined
        ? workload === undefined
          ? undefined
          : '--workload'
        : '--trace'
      : '--prompts'
  const [madeUp] = given(flags, MADE_UP)
  if (elsewhere !== undefined && madeUp !== undefined)
    throw wrong(
      `${madeUp} with ${elsewhere}`,
      'one of them',
      `Leave one out: ${elsewhere} says what prompts are.`,
    )
  if (outputTokens !== undefined && elsewhere !== undefined && elsewhere !== '--prompts')
    throw wrong(
      `--output-tokens with ${elsewhere}`,
      'one of them',
      `Leave it out: ${elsewhere} says how long answers are.`,
    )
  if (prefixTokens !== undefined && prefixGroups === undefined)
    throw wrong('--prefix-tokens without --prefix-groups', 'both', 'Say of how many texts prompts share one.')
  if (prefixTokens !== undefined && prefixTokens >= promptTokens)
    throw wrong(
      `--prefix-tokens ${prefixTokens} of ${promptTokens}`,
      'fewer than the prompt has',
      'Make the prefix shorter.',
    )
}

function checkSweep(flags: BenchFlags): void {
  if (flags.trace === undefined && flags.url !== undefined)
    throw wrong(
      '--sweep without --trace',
      'a trace, which the workers and the simulator replay',
      'Name the trace.',
    )
  const [strange] = given(flags, NOT_IN_SWEEP)
  if (strange !== undefined)
    throw wrong(
      `${strange} with --sweep`,
      'what a simulation knows',
      'Leave it out: a sweep has --rates, --requests and --arrivals.',
    )
}

export function wrong(found: string, expected: string, todo: string): EldrError {
  return new EldrError('ELDR_USAGE', { found, expected, todo })
}
