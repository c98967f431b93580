import { type Command, InvalidArgumentError, Option } from 'commander'
import { POLICIES } from '../policy/decode-policy.ts'
import { nameList, positiveNumber, wholeNumber } from './options.ts'
import { rates } from './simulate.ts'

/** What has a default that depends on other flags, or must not come with them, is absent unless given. */
export interface BenchFlags {
  readonly url?: string
  readonly model?: string
  readonly api: 'completions' | 'chat'
  readonly apiKey?: string
  readonly insecure?: true
  readonly timeout: number
  readonly rate?: number
  readonly arrivals?: 'poisson' | 'gamma' | 'on_off'
  readonly burstiness?: number
  readonly workload?: string
  readonly maxPrompt?: number
  readonly maxOutput?: number
  readonly concurrency?: number
  readonly requests?: number
  readonly duration?: number
  readonly warmupRequests?: number
  readonly warmupSeconds?: number
  readonly prompts?: string
  readonly trace?: string
  readonly promptTokens?: number
  readonly prefixGroups?: number
  readonly prefixTokens?: number
  readonly outputTokens?: number
  readonly promptAs?: 'ids' | 'text'
  readonly stopAtEos?: true
  readonly extraBody?: Readonly<Record<string, unknown>>
  readonly sloTtft?: number
  readonly sloTpot?: number
  readonly seed: number
  readonly json?: true | string
  readonly compare?: readonly string[]
  readonly sweep?: true
  readonly policies?: readonly string[]
  readonly rates?: readonly number[]
  readonly topology?: string
  readonly artifact?: string
  readonly profile?: string
  readonly adminToken?: string
  readonly quiet?: true
}

const tokens = wholeNumber(1, 2 ** 31 - 1)
const count = wholeNumber(1, 100_000_000)

export function addBench(program: Command): void {
  program
    .command('bench')
    .summary('load an OpenAI-compatible server and measure what its users see')
    .description(
      'Sends streams to any OpenAI-compatible server and measures TTFT, TPOT, ITL, end-to-end times, throughput and goodput. With a rate the loop is open: requests leave when they are planned, whatever the server does, and latencies count from then. docs/guides/bench.md says what each figure means.',
    )
    .option('--url <url>', 'the server, such as http://127.0.0.1:8000')
    .option('--model <name>', 'model to ask for (default: the first that the server names)')
    .addOption(
      new Option('--api <name>', 'which of its APIs').choices(['completions', 'chat']).default('completions'),
    )
    .addOption(new Option('--api-key <key>', 'key for the server').env('OPENAI_API_KEY'))
    .option('--insecure', 'take certificates that nobody vouches for')
    .option('--timeout <s>', 'a request that has not ended after so long is an error', positiveNumber, 600)
    .option('--rate <n>', 'requests a second, open loop', positiveNumber)
    .addOption(
      new Option('--arrivals <kind>', 'how they come (default: poisson)').choices([
        'poisson',
        'gamma',
        'on_off',
      ]),
    )
    .option(
      '--burstiness <shape>',
      'of gamma arrivals: 1 is Poisson, below come bursts (default: 0.25)',
      positiveNumber,
    )
    .option(
      '--workload <file>',
      'arrivals, lengths and prefixes of an Azure CSV or Mooncake JSONL file; --rate stretches it',
    )
    .option('--max-prompt <tokens>', 'cuts longer prompts of the workload', tokens)
    .option('--max-output <tokens>', 'cuts longer outputs of the workload', tokens)
    .option('--concurrency <n>', 'so many streams at a time, closed loop', wholeNumber(1, 100_000))
    .option('--requests <n>', 'that count (default: 1000, or what --duration lets)', count)
    .option('--duration <s>', 'of the part that counts', positiveNumber)
    .option('--warmup-requests <n>', 'sent first, not counted', wholeNumber(0, 100_000_000))
    .option('--warmup-seconds <s>', 'requests of the first seconds are not counted', positiveNumber)
    .option('--prompts <file.jsonl>', 'lines of {"prompt"} or {"messages"}, with "max_tokens" or without')
    .option('--trace <file>', 'request i follows row i of a trace, for the embedded workers')
    .option('--prompt-tokens <n>', 'of made-up prompts (default: 512)', tokens)
    .option('--prefix-groups <n>', 'made-up prompts begin with one of so many texts', count)
    .option('--prefix-tokens <n>', 'of these texts (default: half of the prompt)', tokens)
    .option('--output-tokens <n>', 'of an answer (default: 128)', tokens)
    .addOption(
      new Option(
        '--prompt-as <form>',
        'made-up prompts as token ids or words (default: ids, for chat text)',
      ).choices(['ids', 'text']),
    )
    .option('--stop-at-eos', 'do not ask for ignore_eos, which OpenAI’s own servers do not know')
    .option('--extra-body <json>', 'fields that every request has besides', jsonObject)
    .option('--slo-ttft <ms>', 'goodput counts requests whose first token came in time', positiveNumber)
    .option('--slo-tpot <ms>', 'and whose other tokens took no longer than this each', positiveNumber)
    .option('--seed <n>', 'of arrivals and made-up prompts', wholeNumber(0, 2 ** 40), 0)
    .option('--json [file]', 'print the results as JSON, or write them to a file')
    .option('--compare <files...>', 'two results of --json: ratios, and what differs in the runs')
    .option(
      '--sweep',
      'policies and rates on a running gateway, or without --url on a cluster started for it, beside what the simulator says',
    )
    .option(
      '--policies <list>',
      `of a sweep: ${POLICIES.join(', ')}; eldr@0.2 sets the band (default: round_robin,eldr,union)`,
      nameList,
    )
    .option('--rates <list>', 'of a sweep, requests a second (default: 20,40)', rates)
    .option(
      '--topology <text>',
      'of a sweep: what is simulated (default: the workers that the gateway has), and started without --url (2P4D)',
    )
    .option(
      '--artifact <file>',
      'of a sweep: the artifact that the gateway routes by (without --url: fitted if none is given)',
    )
    .option('--profile <name>', 'of a sweep: the cost profile of the workers (default: h200-first)')
    .addOption(
      new Option('--admin-token <token>', 'of a sweep: opens the gateway’s admin API').env(
        'ELDR_ADMIN_TOKEN',
      ),
    )
    .option('-q, --quiet', 'no progress')
    .addHelpText(
      'after',
      `
Examples:
  eldr bench --url http://127.0.0.1:8000 --rate 20 --requests 500 --slo-ttft 500 --slo-tpot 20
  eldr bench --url http://127.0.0.1:8000 --concurrency 64 --duration 30 --json after.json
  eldr bench --compare before.json after.json
  eldr bench --sweep --rates 60,100
  eldr bench --sweep --url http://127.0.0.1:8000 --trace data/lab16-task.evaluation.safetensors --artifact task.artifact.safetensors`,
    )
    .action(async (flags: BenchFlags) => (await import('./bench-action.ts')).benchAction(flags))
}

function jsonObject(text: string): Record<string, unknown> {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    value = undefined
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value))
    return value as Record<string, unknown>
  throw new InvalidArgumentError('Expected a JSON object such as \'{"top_p": 0.9}\'.')
}
