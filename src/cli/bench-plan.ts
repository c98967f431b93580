/** From the flags of `eldr bench` to a plan of the load client, and to its description in the results. */
import { createRandom } from '../math/random.ts'
import { openEndpoint, firstModel } from '../load/endpoint.ts'
import { readTraceRows, synthetic, traceSource, workloadSource } from '../load/made-up-sources.ts'
import type { PromptForm } from '../load/made-up-text.ts'
import type { ClosedLoop, OpenLoop } from '../load/pacing.ts'
import { promptFile } from '../load/prompt-file.ts'
import type { RequestSource } from '../load/request-source.ts'
import type { BenchSetup } from '../load/result.ts'
import type { LoadPlan } from '../load/run-load.ts'
import { type ArrivalSpec, createArrivals } from '../sim/arrivals.ts'
import { type RecordedWorkload, readWorkload } from '../sim/recorded-workload.ts'
import { arrivalsAt } from '../sim/study.ts'
import type { BenchFlags } from './bench.ts'

export const REQUESTS = 1000
const PROMPT_TOKENS = 512
const OUTPUT_TOKENS = 128
/** Random numbers of arrivals are others than those of prompts. */
const ARRIVALS = 1

export interface BenchPlan {
  readonly plan: LoadPlan
  readonly setup: BenchSetup
}

/** Files are read before the server is asked for its model. */
export async function benchPlan(flags: BenchFlags): Promise<BenchPlan> {
  const { api, seed, extraBody } = flags
  const workload =
    flags.workload === undefined ? undefined : await readWorkload(flags.workload, capsOf(flags))
  const source = await sourceOf(flags, workload)
  const { loop, about } = loopOf(flags, workload)
  const limits = limitsOf(flags, workload)
  const spec = {
    url: flags.url!,
    api,
    ...(flags.apiKey !== undefined && { apiKey: flags.apiKey }),
    ...(flags.insecure && { insecure: true }),
  }
  const endpoint = openEndpoint(spec)
  try {
    const model = flags.model ?? (await firstModel(endpoint))
    const body = { api, model, ignoreEos: flags.stopAtEos !== true, ...(extraBody && { extra: extraBody }) }
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

/** A warm-up comes on top of what was asked for. With seconds of warm-up and a number of requests, those sent meanwhile are among them. */
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
  const arrive = createArrivals(specOf(flags, workload), createRandom(seed).fork(ARRIVALS))
  const about = {
    loop: 'open',
    arrivals: workload === undefined ? arrivals : `recorded in ${workload.source}`,
    ...(rate !== undefined && { rate }),
    ...(arrivals === 'gamma' && { burstiness: burstiness ?? 0.25 }),
  }
  return { loop: { kind: 'open', nextMs: () => arrive() / 1000 }, about }
}

/** The recorded requests that run have the rate asked for, whatever the rate of those after them. */
function specOf(
  { rate, arrivals, burstiness, requests, warmupRequests = 0 }: BenchFlags,
  workload: RecordedWorkload | undefined,
): ArrivalSpec {
  if (workload !== undefined) {
    const timesUs = workload.timesUs.subarray(0, (requests ?? REQUESTS) + warmupRequests)
    return { kind: 'recorded', timesUs, ...(rate !== undefined && { perSecond: rate }) }
  }
  if (arrivals === 'gamma' && burstiness !== undefined)
    return { kind: 'gamma', perSecond: rate!, shape: burstiness }
  return arrivalsAt(arrivals ?? 'poisson', rate!)
}

function capsOf({ maxPrompt, maxOutput }: BenchFlags) {
  return {
    ...(maxPrompt !== undefined && { promptTokens: maxPrompt }),
    ...(maxOutput !== undefined && { outputTokens: maxOutput }),
  }
}
