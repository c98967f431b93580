import type { Trace } from './trace.ts'

/** Facts about a trace that help before fitting it. Computing them checks every value. */
export interface TraceStats {
  /** Lowest, median and highest; absent if the trace does not record it. */
  readonly promptTokens?: Spread
  readonly decodeSteps?: Spread
  /** Requests by domain, in the order of the trace's names. */
  readonly domains: readonly number[]
  /** Mean number of distinct experts that a request uses in a layer at prefill. */
  readonly expertsPerLayer: number
  /** Share of the prompt tokens covered by counts: below 1 if some KV came from elsewhere. */
  readonly covered?: number
  /** Requests without any count: they cannot have a signature. */
  readonly withoutCounts: number
}

export interface Spread {
  readonly min: number
  readonly median: number
  readonly max: number
}

/** Memory for one chunk of rows, so that a trace of any length can be read. */
const CHUNK_BYTES = 8 << 20

export async function traceStats(
  trace: Trace,
  onProgress?: (done: number, total: number) => void,
): Promise<TraceStats> {
  const { requests, layers, experts, topK } = trace
  const cells = layers * experts
  const rowsAtOnce = Math.max(1, Math.floor(CHUNK_BYTES / (4 * cells)))
  const tokens = await trace.promptTokens()
  const steps = trace.has('decode_steps') ? await trace.decodeSteps() : undefined
  let used = 0
  let counted = 0
  let withoutCounts = 0
  for (let from = 0; from < requests; from += rowsAtOnce) {
    const to = Math.min(requests, from + rowsAtOnce)
    const counts = await trace.prefillCounts(from, to)
    for (let at = 0; at < counts.length; at += cells) {
      const before = counted
      for (let c = at; c < at + cells; c++) {
        if (counts[c] === 0) continue
        used++
        counted += counts[c]!
      }
      if (counted === before) withoutCounts++
    }
    await checkRest(trace, from, to)
    onProgress?.(to, requests)
  }
  const domain = await trace.domain()
  const domains = trace.domains.map(() => 0)
  for (const index of domain ?? []) domains[index]!++
  const wanted = tokens === undefined ? 0 : topK * layers * Array.from(tokens).reduce((sum, n) => sum + n, 0)
  return {
    promptTokens: tokens && spread(tokens),
    decodeSteps: steps && spread(steps),
    domains: domain ? domains : [],
    expertsPerLayer: used / (requests * layers),
    covered: wanted > 0 ? counted / wanted : undefined,
    withoutCounts,
  }
}

/** The readers check values; their results are not needed here. */
async function checkRest(trace: Trace, from: number, to: number): Promise<void> {
  const gateTo = Math.min(to, trace.gateRows)
  if (trace.has('prefill_recent')) await trace.prefillRecent(from, to)
  if (trace.has('gate_prob_sum') && from < gateTo) await trace.gateProb(from, gateTo)
  if (trace.has('gate_logit_mean') && from < gateTo) await trace.gateLogit(from, gateTo)
  if (!trace.has('decode_steps')) return
  if (trace.has('decode_counts')) await trace.decodeCounts(from, to)
  if (trace.has('decode_expert_ids')) await trace.decodeExpertIds(from, to)
}

function spread(values: Uint16Array | Uint32Array): Spread {
  const sorted = values.toSorted()
  return { min: sorted[0]!, median: sorted[Math.floor(sorted.length / 2)]!, max: sorted.at(-1)! }
}
