/**
 * A cost profile: GPU times of a decode step, prefill, and a transfer of the KV cache. It is data with
 * provenance: measured by `bench/gpu`, or assumed and marked so. The simulator and the embedded worker take
 * all their times from it.
 */
export interface CostProfile {
  readonly name: string
  readonly provenance: Provenance
  /**
   * Of the model that was timed. A trace of another model is mapped onto its layers (`layerWeights`); reports
   * name both shapes.
   */
  readonly shape: { readonly layers: number; readonly experts: number; readonly topK: number }
  readonly decode: DecodeCost
  readonly prefill: PrefillCost
  readonly kv: KvCost
}

export interface Provenance {
  /** What the numbers are, in one sentence. */
  readonly what: string
  readonly measuredOn?: string
  /** YYYY-MM-DD. */
  readonly date?: string
  /** The file of raw timings, or the text, that the numbers come from. */
  readonly source?: string
  /** What is assumed, and what is not modelled. */
  readonly notes: readonly string[]
}

/**
 * One step of the whole batch: base + perRequest·batch + layers·(perLayer + perActiveExpert·active) +
 * perContextKToken·context/1000, and for each of `windows` its perContextKToken·Σ min(context of a request,
 * tokens)/1000. With `host` this is the device's part of the step. `kind` leaves room for a measured table
 * next to the linear form.
 */
export interface DecodeCost {
  readonly kind: 'linear'
  readonly baseUs: number
  readonly perRequestUs: number
  readonly perLayerUs: number
  /** Per active expert and layer. */
  readonly perActiveExpertUs: number
  /** Per 1,000 tokens of context, summed over the batch, for the layers with full attention. */
  readonly perContextKTokenUs: number
  /** Sliding-window layers, one entry per window size. */
  readonly windows?: readonly AttentionWindow[]
  /** What the engine's process does for a step; absent if the times above include it, or leave it out. */
  readonly host?: HostCost
  /** For engines that share a device (default: `DEFAULT_SHARING`). */
  readonly sharing?: DeviceSharing
  /** How much steps vary around the modelled time; absent if they do not. */
  readonly noise?: StepNoise
}

/** Host's part of a step: base + perRequest·batch. Engines that share a device do these parts in parallel. */
export interface HostCost {
  readonly baseUs: number
  readonly perRequestUs: number
  /**
   * True: the host prepares the next step while the device runs this one (asynchronous scheduling), so a step
   * takes the longer of the two parts. False: it takes their sum.
   */
  readonly overlaps: boolean
}

/** How device parts of several engines on one device slow each other; sim/shared-device.ts has the rules. */
export interface DeviceSharing {
  /** They take turns layer by layer, or all get the same bandwidth. */
  readonly by: 'layer' | 'bandwidth'
  /**
   * Equal device parts that run at full speed together. 1: one alone uses the whole device; 1.25: 80 % of it.
   */
  readonly capacity: number
}

/**
 * On an H200 under CUDA MPS, engines with fewer experts did not step faster than those beside them: they take
 * turns.
 */
export const DEFAULT_SHARING: DeviceSharing = { by: 'layer', capacity: 1 }

/**
 * Factors of a step's time at evenly spaced probabilities from 0 to 1, ascending: the quantiles of measured
 * over modelled time. A step draws one, interpolated between the nearest two.
 */
export interface StepNoise {
  readonly factors: readonly number[]
}

/** Window size in tokens of context. */
export interface AttentionWindow {
  readonly tokens: number
  /** Per 1,000 tokens inside the window, summed over the batch. */
  readonly perContextKTokenUs: number
}

/** One prefill step: base + perToken·tokens, for any mix of requests. */
export interface PrefillCost {
  readonly baseUs: number
  readonly perTokenUs: number
}

export interface KvCost {
  readonly bytesPerToken: number
  /** Tokens of context that one decode worker can hold. */
  readonly capacityTokens: number
  readonly latencyUs: number
  readonly gigabytesPerSecond: number
}

/**
 * A step of an engine alone on its device, without noise. `active`: distinct experts that the step fires,
 * mean over the profile's layers. `contextTokens`: summed over the batch. `windowedTokens`: for each window
 * of the profile, Σ min(context, tokens) over the batch, which cannot be derived from the sum of contexts.
 */
export function stepUs(
  profile: CostProfile,
  batch: number,
  active: number,
  contextTokens: number,
  windowedTokens?: ArrayLike<number>,
): number {
  const device = deviceUs(profile, batch, active, contextTokens, windowedTokens)
  return wholeStepUs(profile, hostUs(profile, batch), device)
}

/** Step of an engine alone on its device, from its parts. */
export function wholeStepUs({ decode }: CostProfile, hostPartUs: number, devicePartUs: number): number {
  return decode.host?.overlaps === true ? Math.max(hostPartUs, devicePartUs) : hostPartUs + devicePartUs
}

export function hostUs({ decode: { host } }: CostProfile, batch: number): number {
  return host === undefined ? 0 : host.baseUs + host.perRequestUs * batch
}

/** The device's part of a step; all of it if the profile has no host part. Arguments as for `stepUs`. */
export function deviceUs(
  { shape, decode }: CostProfile,
  batch: number,
  active: number,
  contextTokens: number,
  windowedTokens?: ArrayLike<number>,
): number {
  const moeUs = shape.layers * (decode.perLayerUs + decode.perActiveExpertUs * active)
  const us =
    decode.baseUs + decode.perRequestUs * batch + moeUs + decode.perContextKTokenUs * (contextTokens / 1000)
  return decode.windows === undefined ? us : us + windowsUs(decode.windows, windowedTokens)
}

function windowsUs(windows: readonly AttentionWindow[], windowedTokens: ArrayLike<number> = []): number {
  if (windowedTokens.length !== windows.length)
    throw new RangeError(`${windowedTokens.length} windowed sums for ${windows.length} windows`)
  let us = 0
  for (let w = 0; w < windows.length; w++) us += windows[w]!.perContextKTokenUs * (windowedTokens[w]! / 1000)
  return us
}

/** Factor of one step's time; `uniform` in [0, 1). */
export function noiseFactor({ factors }: StepNoise, uniform: number): number {
  const place = uniform * (factors.length - 1)
  const low = Math.min(Math.floor(place), factors.length - 2) // `place` may round up to the last one
  return factors[low]! + (factors[low + 1]! - factors[low]!) * (place - low)
}

/**
 * The parts of a decode step's time that policies use: the time of an empty batch, and the increment per
 * expert in every layer and per request. With several expert-parallel ranks a step waits for the fullest one,
 * which has about its share of the experts. The host's part is left out: it does not depend on the experts.
 */
export function stepParts(
  { shape, decode }: CostProfile,
  ranks = 1,
): { base: number; perExpert: number; perRequest: number } {
  const base = decode.baseUs + shape.layers * decode.perLayerUs
  return {
    base,
    perExpert: (decode.perActiveExpertUs * shape.layers) / ranks,
    perRequest: decode.perRequestUs,
  }
}

export function prefillUs({ prefill }: CostProfile, tokens: number): number {
  return prefill.baseUs + prefill.perTokenUs * tokens
}

/**
 * Time from one worker to another; transfers do not slow each other down. 1 GB/s is 1,000 bytes per
 * microsecond.
 */
export function transferUs({ kv }: CostProfile, tokens: number): number {
  return kv.latencyUs + (kv.bytesPerToken * tokens) / (kv.gigabytesPerSecond * 1000)
}

/** What policies need to know about a turn of a conversation that stays on its worker. */
export function turnParts(profile: CostProfile): {
  transferUs: number
  transferPerTokenUs: number
  prefillUs: number
  prefillPerTokenUs: number
} {
  const { kv, prefill } = profile
  return {
    transferUs: kv.latencyUs,
    transferPerTokenUs: transferUs(profile, 1) - kv.latencyUs,
    prefillUs: prefill.baseUs,
    prefillPerTokenUs: prefill.perTokenUs,
  }
}

/**
 * Share of the profile's layers that each layer of a trace represents: the profile's layer l takes the
 * trace's layer ⌊l·L_trace/L_profile⌋. The mean of active experts over the profile's layers is then Σ
 * weight·active over the trace's.
 */
export function layerWeights(profileLayers: number, traceLayers: number): Float64Array {
  const taken = new Float64Array(traceLayers)
  for (let layer = 0; layer < profileLayers; layer++)
    taken[Math.floor((layer * traceLayers) / profileLayers)]!++
  return taken.map(count => count / profileLayers)
}
