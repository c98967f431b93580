/**
 * A cost profile from the recorded steps of a served engine. What was not recorded (prefill, KV transfers) is
 * taken from another profile, and its notes say so.
 */
import type { CostProfile } from '../cost/profile.ts'
import { PROFILE_FORMAT } from '../cost/profile-file.ts'
import { nonNegativeLeastAbsolute } from '../math/least-absolute.ts'
import { fixed, percent, whole } from '../report/numbers.ts'
import { fullBatchSteps } from './full-batch.ts'
import type { ResultOf } from './result-file.ts'
import { fitSteps, type StepFit } from './step-fit.ts'

type ProfileResult = ResultOf<'profile'>

/** Transfers through a network of 400 Gbit/s, as in the other profiles. */
const ASSUMED_TRANSFER = { latencyUs: 1_000, gigabytesPerSecond: 50 }
/** More than any run of the experiments holds. */
const ASSUMED_CAPACITY = 1_000_000

export interface ServedProfile {
  readonly profile: CostProfile
  readonly fit: StepFit
}

/** `base`: profile whose prefill and KV cache are taken if the result has none. */
export function servedProfile(result: ProfileResult, base?: CostProfile): ServedProfile {
  const { model, conditions, profile: recorded } = result
  if ((recorded.engines ?? 1) > 1)
    throw new Error(
      `${result.name}: ${recorded.engines} engines shared the device; a profile is of one alone`,
    )
  const fit = fitSteps(fullBatchSteps(recorded), model.layers)
  const prefill = prefillOf(result, base)
  const kv = kvOf(result, base)
  const gpu = conditions.gpu.name.replace(/^NVIDIA\s+/i, '')
  const profile: CostProfile = {
    name: `${gpu.toLowerCase().replace(/[^a-z0-9]+/g, '-')}-served-${result.name.replace(/^profile-/, '')}`,
    provenance: {
      what: `A decode step of ${model.name} in vLLM ${conditions.versions.vllm} on one ${gpu}, as served: from step to step of a busy engine, scheduler and sampling included`,
      measuredOn: `${conditions.gpu.name}, driver ${conditions.gpu.driver}, torch ${conditions.versions.torch}, vLLM ${conditions.versions.vllm}`,
      date: conditions.date.slice(0, 10),
      source: `bench/gpu/serving/results/${result.name}.json`,
      notes: [
        fitNote(fit, recorded.steps.ms.length),
        ...(fit.holds === undefined ? [] : [fit.holds]),
        rangeNote(recorded.steps.experts, model.experts),
        weightsNote(result),
        prefill.note,
        kv.note,
        'Assumed: nothing but the engine used the device.',
      ],
    },
    shape: { layers: model.layers, experts: model.experts, topK: model.topK },
    decode: fit.decode,
    prefill: prefill.cost,
    kv: kv.cost,
  }
  return { profile, fit }
}

/** The file, in the layout of the others. */
export function profileText(profile: CostProfile): string {
  return `${JSON.stringify({ format: PROFILE_FORMAT, ...profile }, undefined, 2)}\n`
}

function fitNote({ error, hostBound, steps, decode }: StepFit, recorded: number): string {
  const which =
    steps === recorded
      ? `${whole(steps)} recorded steps`
      : `${whole(steps)} of ${whole(recorded)} recorded steps, those of a full batch (in the others the prefill of a next request was near)`
  const form =
    decode.host === undefined
      ? 'linear in requests, experts and context'
      : `the longer of a host part and a device part; the host's is longer in ${percent(hostBound)} of the steps`
  return `Fit of least absolute deviations over ${which}: ${form}. Error: median ${percent(error.median, 1)}, p90 ${percent(error.p90, 1)}, worst ${percent(error.worst, 1)}. The noise is that of the same steps.`
}

/** Beyond these experts a step is extrapolated. */
function rangeNote(experts: readonly number[], all: number): string {
  const sorted = experts.filter(value => value > 0).toSorted((a, b) => a - b)
  return `Recorded steps activate ${fixed(sorted[0] ?? NaN, 0)} to ${fixed(sorted.at(-1) ?? NaN, 0)} of ${all} experts per layer.`
}

function weightsNote({ model: { weights, dtype } }: ProfileResult): string {
  const words = {
    widened: 'the trained model, padded with zeros: real routing, weight traffic of the larger shape',
    dummy: 'random (`--load-format dummy`): the timing of a shape, without locality',
    trained: 'those of the trained model',
  }
  return `Weights in ${dtype}: ${words[weights]}.`
}

function prefillOf(
  { name, profile: { prefill } }: ProfileResult,
  base: CostProfile | undefined,
): { readonly cost: CostProfile['prefill']; readonly note: string } {
  if (prefill !== undefined) {
    const [baseUs = 0, perTokenUs = 0] = line(prefill.tokens, prefill.ms)
    const note = `Prefill: a line through ${whole(prefill.ms.length)} recorded steps of prompts alone.`
    return { cost: { baseUs, perTokenUs }, note }
  }
  if (base === undefined) throw new Error(`${name}: no prefill was recorded; name a profile to take it from`)
  return { cost: base.prefill, note: `Assumed: prefill as in ${base.name}.` }
}

function kvOf(
  { name, profile: { kv } }: ProfileResult,
  base: CostProfile | undefined,
): { readonly cost: CostProfile['kv']; readonly note: string } {
  if (kv === undefined) {
    if (base === undefined)
      throw new Error(`${name}: no KV cache was recorded; name a profile to take it from`)
    return { cost: base.kv, note: `Assumed: KV cache and transfers as in ${base.name}.` }
  }
  const { bytesPerToken, capacityTokens = ASSUMED_CAPACITY, transferMs = [], transferTokens = [] } = kv
  const shape = { bytesPerToken, capacityTokens }
  const room =
    kv.capacityTokens === undefined ? 'Assumed: room for a million tokens' : 'Room as the engine reported it'
  const [latencyUs = 0, perTokenUs = 0] = transferMs.length < 2 ? [] : line(transferTokens, transferMs)
  if (perTokenUs <= 0)
    return {
      cost: { ...shape, ...ASSUMED_TRANSFER },
      note: `KV cache: ${whole(bytesPerToken)} bytes per token. ${room}. Assumed: 50 GB/s and 1 ms per transfer.`,
    }
  return {
    cost: {
      ...shape,
      latencyUs,
      gigabytesPerSecond: Number((bytesPerToken / (1000 * perTokenUs)).toPrecision(6)),
    },
    note: `KV cache: ${whole(bytesPerToken)} bytes per token. ${room}. Transfers: a line through ${whole(transferMs.length)} of them.`,
  }
}

/** Microseconds: intercept and slope per token. Some recorded times are pauses: they do not bend the line. */
function line(tokens: readonly number[], ms: readonly number[]): number[] {
  const us = ms.map(value => 1000 * value)
  return nonNegativeLeastAbsolute([tokens.map(() => 1), tokens], us).map(value =>
    Number(value.toPrecision(6)),
  )
}
