/** Turns the flags of `eldr bench` into a load plan and its description in the results. */
import { conversations } from '../load/conversation-source.ts'
import { openEndpoint, firstModel } from '../load/endpoint.ts'
import { readTraceRows, synthetic, traceSource, workloadSource } from '../load/synthetic-sources.ts'
import type { PromptForm } from '../load/synthetic-text.ts'
import type { ClosedLoop, OpenLoop } from '../load/pacing.ts'
import { promptFile } from '../load/prompt-file.ts'
import type { RequestSource } from '../load/request-source.ts'
import type { BenchSetup } from '../load/result.ts'
import type { LoadPlan } from '../load/run-load.ts'
import type { ArrivalSpec } from '../sim/arrivals.ts'
import { benchArrivals } from '../sim/bench-load.ts'
import { type RecordedWorkload, readWorkload } from '../sim/recorded-workload.ts'
import { arrivalsAt } from '../sim/study.ts'
import type { BenchFlags } from './bench.ts'

export const REQUESTS = 1000
const PROMPT_TOKENS = 512
const OUTPUT_TOKENS = 128

export interface BenchPlan {
  readonly plan: LoadPlan
  readonly setup: BenchSetup
}

/** Reads all files before it asks the server for its model. */
export async function benchPlan(flags: BenchFlags): Promise<BenchPlan> {
  const { api, seed, extraBody } = flags
  const workload =
    flags.workload === undefined ? undefined : await readWorkload(flags.workload, capsOf(flags))
  const source = await sourceOf(flags, workload)
  const { loop, about } = loopOf(flags, workload)
  const limits = limitsOf(flags, workload)
  const endpoint = openEndpoint({ url: flags.url!, api, apiKey: flags.apiKey, insecure: flags.insecure })
  try {
    const model = flags.model ?? (await firstModel(endpoint))
    const body = { api, model, ignoreEos: flags.stopAtEos !== true, extra: extraBody }
    const { first, warmUpMs, requests, durationMs } = limits
    const setup: BenchSetup = {
      url: `${endpoint.origin}${endpoint.root}`,
      api,
      model,
      load: about,
      prompts: source.about,
      limits: {
        ...(Number.isFinite(requests) && { requests: requests - first }),
        ...(flags.duration !== undefined && { seconds: flags.duration }),
      },
      warmUp: { ...(first > 0 && { requests: first }), ...(warmUpMs > 0 && { seconds: warmUpMs / 1000 }) },
      seed,
      ...(extraBody && { body: extraBody }),
    }
    const counts = (index: number, fromStartMs: number) => index >= first && fromStartMs >= warmUpMs
    const timeoutMs = flags.timeout * 1000
    return {
      setup,
      plan: {
        endpoint,
        source,
        body,
        loop,
        requests,
        durationMs,
        counts,
        timeoutMs,
        idPrefix: `bench-${seed}`,
      },
    }
  } catch (error) {
    await endpoint.close()
    throw error
  }
}

/**
 * Warm-up requests and seconds come on top of the measured ones; requests sent during warm-up seconds count
 * towards --requests.
 */
function limitsOf(flags: BenchFlags, workload: RecordedWorkload | undefined) {
  const { warmupRequests: first = 0, warmupSeconds = 0, duration } = flags
  const counted =
    flags.requests ??
    (duration === undefined ? Math.min(REQUESTS, (workload?.timesUs.length ?? Infinity) - first) : Infinity)
  const durationMs = duration === undefined ? Infinity : (warmupSeconds + duration) * 1000
  return { first, warmUpMs: warmupSeconds * 1000, requests: counted + first, durationMs }
}

export const formOf = ({ api, promptAs }: Pick<BenchFlags, 'api' | 'promptAs'>): PromptForm =>
  promptAs ?? (api === 'chat' ? 'text' : 'ids')

async function sourceOf(flags: BenchFlags, workload: RecordedWorkload | undefined): Promise<RequestSource> {
  const opening = await openingsOf(flags, workload)
  const { turns, thinkTime = 1, promptTokens = PROMPT_TOKENS, seed } = flags
  if (turns === undefined) return opening
  const messageTokens = Math.ceil(promptTokens / 8)
  return conversations(opening, { turns, thinkSeconds: thinkTime, messageTokens, seed })
}

async function openingsOf(flags: BenchFlags, workload: RecordedWorkload | undefined): Promise<RequestSource> {
  const { seed, outputTokens, prefixGroups = 0, promptTokens = PROMPT_TOKENS } = flags
  const form = formOf(flags)
  if (flags.prompts !== undefined) return promptFile(flags.prompts, flags.api, outputTokens)
  if (flags.trace !== undefined) return traceSource(await readTraceRows(flags.trace), form, seed)
  if (workload !== undefined) return workloadSource(workload, form, seed)
  const prefixTokens = flags.prefixTokens ?? Math.floor(promptTokens / 2)
  return synthetic({
    form,
    promptTokens,
    outputTokens: outputTokens ?? OUTPUT_TOKENS,
    prefixGroups,
    prefixTokens,
    seed,
  })
}

function loopOf(
  flags: BenchFlags,
  workload: RecordedWorkload | undefined,
): { loop: OpenLoop | ClosedLoop; about: BenchSetup['load'] } {
  const { concurrency, rate, seed, burstiness, arrivals = 'poisson' } = flags
  if (concurrency !== undefined)
    return { loop: { kind: 'closed', concurrency }, about: { loop: 'closed', concurrency } }
  const arrive = benchArrivals(specOf(flags, workload), seed)
  const about = {
    loop: 'open',
    arrivals: workload === undefined ? arrivals : `recorded in ${workload.source}`,
    ...(rate !== undefined && { rate }),
    ...(arrivals === 'gamma' && { burstiness: burstiness ?? 0.25 }),
  }
  return { loop: { kind: 'open', nextMs: () => arrive() / 1000 }, about }
}

/** Rescales only the recorded requests that run, so that these have the given rate. */
function specOf(
  { rate, arrivals, burstiness, requests, warmupRequests = 0 }: BenchFlags,
  workload: RecordedWorkload | undefined,
): ArrivalSpec {
  if (workload !== undefined) {
    const timesUs = workload.timesUs.subarray(0, (requests ?? REQUESTS) + warmupRequests)
    return { kind: 'recorded', timesUs, perSecond: rate }
  }
  if (arrivals === 'gamma' && burstiness !== undefined)
    return { kind: 'gamma', perSecond: rate!, shape: burstiness }
  return arrivalsAt(arrivals ?? 'poisson', rate!)
}

function capsOf({ maxPrompt, maxOutput }: BenchFlags) {
  return { promptTokens: maxPrompt, outputTokens: maxOutput }
}
