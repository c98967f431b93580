/**
 * Sends the same requests under every decode policy of one live cluster, and to a single worker: all
 * responses to a request must have the same tokens. The cluster is `eldr up --backend tiny`: processes, a
 * gateway, KV transfers. Policies are changed while it runs.
 */
import { readFileSync } from 'node:fs'
import { POLICIES } from '../../src/policy/decode-policy.ts'
import { createRandom } from '../../src/math/random.ts'
import { UpProcess } from '../up/up-process.ts'
import { startWorkerProcess } from '../worker/processes.ts'

export interface Request {
  /** For people: the prompt’s id and how tokens are sampled. */
  readonly name: string
  readonly prompt: string
  readonly temperature: number
  readonly top_p?: number
  readonly seed?: number
}

export interface IdentityPlan {
  readonly requests: readonly Request[]
  readonly tokens: number
  /** Concurrent requests. */
  readonly concurrency: number
  readonly prefill: number
  readonly decode: number
  /** Clear the prefix caches before each policy, so that prompts are computed again. */
  readonly coldCaches: boolean
}

export interface Identity {
  /** Responses of one worker without a prefix cache. */
  readonly alone: readonly string[]
  readonly underPolicy: ReadonlyMap<string, readonly string[]>
  /** Over the whole run. */
  readonly decodeWorkers: readonly { readonly tokens: number; readonly steps: number }[]
}

interface Line {
  readonly id: string
  readonly domain: string
  readonly prompt: string
}

/** The shortest prompts of each of the ten domains: prefill takes most of the time and proves the least. */
export function promptsOf(perDomain: number): Line[] {
  const text = readFileSync(new URL('../../data/prompts/calibration.jsonl', import.meta.url), 'utf8')
  const lines = text
    .trimEnd()
    .split('\n')
    .map(line => JSON.parse(line) as Line)
  const domains = [...new Set(lines.map(({ domain }) => domain))]
  const shortest = lines.toSorted((a, b) => a.prompt.length - b.prompt.length)
  const own = domains.map(domain => shortest.filter(line => line.domain === domain).slice(0, perDomain))
  // One of each domain in turn, so that batches are mixed.
  return Array.from({ length: perDomain }, (_, i) => own.map(prompts => prompts[i]!)).flat()
}

/** Once greedy, which ignores the seed, and sampled with each seed. */
export function requestsOf(prompts: readonly Line[], seeds: readonly number[]): Request[] {
  return prompts.flatMap(({ id, prompt }) => [
    { name: `${id} greedy`, prompt, temperature: 0 },
    ...seeds.map(seed => ({ name: `${id} seed ${seed}`, prompt, temperature: 0.9, top_p: 0.95, seed })),
  ])
}

export async function collectAnswers(folder: string, plan: IdentityPlan): Promise<Identity> {
  const { prefill, decode, requests } = plan
  const flags = [
    '--prefill',
    String(prefill),
    '--decode',
    String(decode),
    '--backend',
    'tiny',
    '--pace',
    'real',
    '--policy',
    'random',
  ]
  const up = new UpProcess(folder, 'up', '--json', '--no-table', '--port', '0', ...flags)
  const single = await startWorkerProcess('--backend', 'tiny', '--no-prefix-caching')
  const { url } = await up.event<{ event: string; url: string }>('ready')
  const workers = await workersOf(url)
  // Both at once: a single worker uses one core.
  const [alone, underPolicy] = await Promise.all([
    answersOf(
      single.url,
      plan,
      requests.map((_, index) => index),
    ),
    answersUnderPolicies(url, plan, workers),
  ])
  await single.stop()
  const states = await Promise.all(
    workers.map(async worker => ({ ...worker, ...(await stateOf(worker.url)) })),
  )
  up.child.kill('SIGTERM')
  if ((await up.exited) !== 0 || up.said !== '') throw new Error(`eldr up failed: ${up.said}`)
  const decodeWorkers = states
    .filter(({ role }) => role === 'decode')
    .map(({ stats }) => ({ tokens: stats.decodeTokens, steps: stats.decodeSteps }))
  return { alone, underPolicy, decodeWorkers }
}

async function answersUnderPolicies(
  url: string,
  plan: IdentityPlan,
  workers: readonly SeenWorker[],
): Promise<ReadonlyMap<string, readonly string[]>> {
  const underPolicy = new Map<string, readonly string[]>()
  for (const [at, policy] of POLICIES.entries()) {
    const changed = await fetch(`${url}/eldr/policy`, { method: 'PUT', body: JSON.stringify({ policy }) })
    if (changed.status !== 200) throw new Error(`cannot set policy ${policy}: ${await changed.text()}`)
    if (plan.coldCaches) await clearCaches(workers)
    underPolicy.set(policy, await answersOf(url, plan, shuffled(plan.requests.length, at)))
  }
  return underPolicy
}

/** Requests whose responses differ from the other run: names, and both responses. */
export function differences(
  requests: readonly Request[],
  a: readonly string[],
  b: readonly string[],
): string[] {
  return requests.flatMap(({ name }, index) =>
    a[index] === b[index] ? [] : [`${name}: ${a[index]} / ${b[index]}`],
  )
}

/** Sends them in the order of `order`; responses are in the order of the plan. */
async function answersOf(
  url: string,
  { requests, tokens, concurrency }: IdentityPlan,
  order: readonly number[],
): Promise<string[]> {
  const answers: string[] = []
  let next = 0
  async function lane(): Promise<void> {
    for (let index = order[next++]; index !== undefined; index = order[next++])
      answers[index] = await answerTo(url, requests[index]!, tokens)
  }
  await Promise.all(Array.from({ length: concurrency }, lane))
  return answers
}

async function answerTo(url: string, { name, ...asked }: Request, tokens: number): Promise<string> {
  const body = { model: 'tiny6', ...asked, max_tokens: tokens, ignore_eos: true, return_token_ids: true }
  const answer = await fetch(`${url}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  const text = await answer.text()
  if (answer.status !== 200) throw new Error(`${name}: ${answer.status} ${text}`)
  const [choice] = (
    JSON.parse(text) as { choices: { text: string; token_ids: number[]; finish_reason: string }[] }
  ).choices
  if (choice?.token_ids.length !== tokens) throw new Error(`${name}: ${text}`)
  return JSON.stringify([choice.text, choice.token_ids, choice.finish_reason])
}

/** A different order for each policy, so that a request is batched with others. */
function shuffled(count: number, seed: number): number[] {
  const random = createRandom(seed)
  const keys = Array.from({ length: count }, (_, index) => ({ index, key: random.uniform() }))
  return keys.toSorted((a, b) => a.key - b.key).map(({ index }) => index)
}

interface SeenWorker {
  readonly url: string
  readonly role: string
}

async function workersOf(url: string): Promise<SeenWorker[]> {
  return ((await (await fetch(`${url}/eldr/workers`)).json()) as { workers: SeenWorker[] }).workers
}

async function stateOf(url: string): Promise<{ stats: { decodeTokens: number; decodeSteps: number } }> {
  return (await fetch(`${url}/eldr/state`)).json() as ReturnType<typeof stateOf>
}

/** A worker refuses briefly while the last blocks of the previous run are in use. */
async function clearCaches(workers: readonly SeenWorker[]): Promise<void> {
  for (const { url } of workers) {
    const untilMs = performance.now() + 20_000
    while ((await fetch(`${url}/reset_prefix_cache`, { method: 'POST' })).status !== 200)
      if (performance.now() > untilMs) throw new Error(`${url} does not free its blocks`)
  }
}
