/** Checks which flags of `eldr bench` may be combined, before anything is read or sent. */
import type { BenchFlags } from './bench.ts'
import { usageError } from './options.ts'

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
  '--turns': 'turns',
} as const
const LOADS = { '--rate': 'rate', '--workload': 'workload', '--concurrency': 'concurrency' } as const
const SYNTHETIC = {
  '--prompt-tokens': 'promptTokens',
  '--prefix-groups': 'prefixGroups',
  '--prefix-tokens': 'prefixTokens',
} as const

type Flag = keyof BenchFlags

/** The listed flags that the user set. */
function setFlags(flags: BenchFlags, names: Readonly<Record<string, Flag>>): string[] {
  return Object.keys(names).filter(name => flags[names[name]!] !== undefined)
}

export function checkBenchFlags(flags: BenchFlags): void {
  if (flags.url === undefined && !flags.sweep)
    throw usageError('no --url', 'the base URL of a server', 'Pass one, such as --url http://127.0.0.1:8000.')
  const { api, promptAs } = flags
  if (api === 'chat' && promptAs === 'ids')
    throw usageError('--prompt-as ids with --api chat', 'text', 'Remove it: the chat API takes no token ids.')
  if (flags.turns !== undefined && api !== 'chat')
    throw usageError(
      '--turns without --api chat',
      'both',
      'Add --api chat: conversations are lists of messages.',
    )
  if (flags.thinkTime !== undefined && flags.turns === undefined)
    throw usageError('--think-time without --turns', 'both', 'Add --turns, the turns of a conversation.')
  if (flags.sweep) return checkSweep(flags)
  const [misplaced] = setFlags(flags, SWEEP_ONLY)
  if (misplaced !== undefined)
    throw usageError(`${misplaced} without --sweep`, 'both', 'Add --sweep, or remove it.')
  checkLoad(flags)
  checkPrompts(flags)
}

function checkLoad(flags: BenchFlags): void {
  const { rate, concurrency, workload, arrivals, burstiness } = flags
  if (setFlags(flags, LOADS).length === 0)
    throw usageError('no load', '--rate, --workload or --concurrency', 'Choose a load, such as --rate 10.')
  if (concurrency !== undefined && (rate !== undefined || workload !== undefined))
    throw usageError(
      `--concurrency with ${rate === undefined ? '--workload' : '--rate'}`,
      'one of them',
      'Remove one: the loop is either open or closed.',
    )
  if (arrivals !== undefined && (rate === undefined || workload !== undefined))
    throw usageError(
      '--arrivals without --rate, or with --workload',
      '--rate and no --workload',
      'Add --rate, or remove --arrivals.',
    )
  if (burstiness !== undefined && arrivals !== 'gamma')
    throw usageError('--burstiness without --arrivals gamma', 'both', 'Add --arrivals gamma.')
  const [cut] = setFlags(flags, { '--max-prompt': 'maxPrompt', '--max-output': 'maxOutput' })
  if (cut !== undefined && workload === undefined)
    throw usageError(`${cut} without --workload`, 'both', 'Pass the workload file whose lengths are limited.')
}

function checkPrompts(flags: BenchFlags): void {
  const { prompts, trace, promptTokens = 512, prefixTokens, prefixGroups, outputTokens } = flags
  if (prompts !== undefined && trace !== undefined)
    throw usageError('--prompts and --trace', 'one of them', 'Remove one.')
  const [source] = setFlags(flags, { '--prompts': 'prompts', '--trace': 'trace', '--workload': 'workload' })
  const [synthetic] = setFlags(flags, SYNTHETIC)
  if (source !== undefined && synthetic !== undefined)
    throw usageError(
      `${synthetic} with ${source}`,
      'one of them',
      `Remove one: ${source} defines the prompts.`,
    )
  if (outputTokens !== undefined && source !== undefined && source !== '--prompts')
    throw usageError(
      `--output-tokens with ${source}`,
      'one of them',
      `Remove it: ${source} defines the length of responses.`,
    )
  if (prefixTokens !== undefined && prefixGroups === undefined)
    throw usageError(
      '--prefix-tokens without --prefix-groups',
      'both',
      'Add --prefix-groups, the number of shared prefixes.',
    )
  if (prefixTokens !== undefined && prefixTokens >= promptTokens)
    throw usageError(
      `--prefix-tokens ${prefixTokens} of ${promptTokens}`,
      'fewer tokens than the prompt',
      'Use a shorter prefix.',
    )
}

function checkSweep(flags: BenchFlags): void {
  if (flags.trace === undefined && flags.url !== undefined)
    throw usageError(
      '--sweep without --trace',
      'the trace that the workers and the simulator replay',
      'Add --trace.',
    )
  const [misplaced] = setFlags(flags, NOT_IN_SWEEP)
  if (misplaced !== undefined)
    throw usageError(
      `${misplaced} with --sweep`,
      'options that the simulator supports',
      'Remove it: a sweep takes --rates, --requests and --arrivals.',
    )
}
