import { type Command, InvalidArgumentError, Option } from 'commander'
import { POLICIES } from '../policy/decode-policy.ts'
import { nameList, positiveNumber, wholeNumber } from './options.ts'
import { rates } from './simulate.ts'

/** Flags whose default depends on other flags, or that exclude others, are undefined if not given. */
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
  readonly turns?: number
  readonly thinkTime?: number
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
    .summary('send load to an OpenAI-compatible server and measure latency and throughput')
    .description(
      'Sends streaming requests to any OpenAI-compatible server and measures TTFT, TPOT, ITL, end-to-end latency, throughput and goodput. With --rate the loop is open: requests are sent at their planned times, no matter how fast the server responds, and latencies are measured from those times. docs/guides/bench.md explains every figure.',
    )
    .option('--url <url>', 'base URL of the server, such as http://127.0.0.1:8000')
    .option('--model <name>', 'model to request (default: the first model that the server lists)')
    .addOption(
      new Option('--api <name>', 'API to use').choices(['completions', 'chat']).default('completions'),
    )
    .addOption(new Option('--api-key <key>', 'API key for the server').env('OPENAI_API_KEY'))
    .option('--insecure', 'accept TLS certificates that cannot be verified')
    .option('--timeout <s>', 'timeout per request, in seconds', positiveNumber, 600)
    .option('--rate <n>', 'requests per second, open loop', positiveNumber)
    .addOption(
      new Option('--arrivals <kind>', 'arrival process (default: poisson)').choices([
        'poisson',
        'gamma',
        'on_off',
      ]),
    )
    .option(
      '--burstiness <shape>',
      'shape of gamma arrivals: 1 is Poisson, lower values are burstier (default: 0.25)',
      positiveNumber,
    )
    .option(
      '--workload <file>',
      'take arrival times, lengths and prefixes from an Azure CSV or Mooncake JSONL file; --rate rescales the times',
    )
    .option('--max-prompt <tokens>', 'truncate longer prompts of the workload', tokens)
    .option('--max-output <tokens>', 'truncate longer outputs of the workload', tokens)
    .option('--concurrency <n>', 'number of concurrent streams, closed loop', wholeNumber(1, 100_000))
    .option(
      '--requests <n>',
      'number of measured requests (default: 1000, or as many as --duration allows)',
      count,
    )
    .option('--duration <s>', 'length of the measured part, in seconds', positiveNumber)
    .option(
      '--warmup-requests <n>',
      'number of requests to send first and not measure',
      wholeNumber(0, 100_000_000),
    )
    .option('--warmup-seconds <s>', 'do not measure requests of the first seconds', positiveNumber)
    .option(
      '--prompts <file.jsonl>',
      'file with one {"prompt"} or {"messages"} per line, optionally with "max_tokens"',
    )
    .option('--trace <file>', 'request i replays row i of a trace (embedded workers only)')
    .option('--prompt-tokens <n>', 'tokens per synthetic prompt (default: 512)', tokens)
    .option(
      '--prefix-groups <n>',
      'number of shared prefixes; each synthetic prompt begins with one of them',
      count,
    )
    .option('--prefix-tokens <n>', 'tokens per shared prefix (default: half of the prompt)', tokens)
    .option(
      '--turns <n>',
      'send conversations of this many turns: each repeats what was said and adds a message of an eighth of --prompt-tokens; needs --api chat',
      wholeNumber(2, 1_000),
    )
    .option('--think-time <s>', 'mean pause before the next turn, in seconds (default: 1)', positiveNumber)
    .option('--output-tokens <n>', 'tokens per response (default: 128)', tokens)
    .addOption(
      new Option(
        '--prompt-as <form>',
        'send synthetic prompts as token ids or as text (default: ids, for chat text)',
      ).choices(['ids', 'text']),
    )
    .option('--stop-at-eos', 'do not send ignore_eos, which OpenAI’s own servers do not support')
    .option('--extra-body <json>', 'extra fields for every request body', jsonObject)
    .option('--slo-ttft <ms>', 'goodput counts only requests whose TTFT is at most this', positiveNumber)
    .option('--slo-tpot <ms>', 'goodput counts only requests whose TPOT is at most this', positiveNumber)
    .option('--seed <n>', 'random seed of arrivals and synthetic prompts', wholeNumber(0, 2 ** 40), 0)
    .option('--json [file]', 'print the results as JSON, or write them to a file')
    .option(
      '--compare <files...>',
      'compare two results of --json: ratios, and differences between the setups',
    )
    .option(
      '--sweep',
      'measure policies and rates on a running gateway (without --url: on a cluster started for it) and compare with the simulator',
    )
    .option(
      '--policies <list>',
      `policies of the sweep: ${POLICIES.join(', ')}; eldr@0.2 sets τ (default: round_robin,eldr,union)`,
      nameList,
    )
    .option('--rates <list>', 'rates of the sweep, in requests per second (default: 20,40)', rates)
    .option(
      '--topology <text>',
      'topology to simulate and, without --url, to start (default: the gateway’s workers; without --url 2P4D)',
    )
    .option('--artifact <file>', 'artifact of the gateway in a sweep (default: fitted if there is no --url)')
    .option('--profile <name>', 'cost profile of the sweep’s workers (default: h200-first)')
    .addOption(
      new Option('--admin-token <token>', 'token for the gateway’s admin API, used by a sweep').env(
        'ELDR_ADMIN_TOKEN',
      ),
    )
    .option('-q, --quiet', 'print no progress')
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
