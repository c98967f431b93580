/** Conversations under several policies: followed or not, with and without the remote prefill. */
import { stepParts, turnParts } from '../cost/profile.ts'
import { createRandom } from '../math/random.ts'
import type { ConversationOptions } from '../policy/conversations.ts'
import { createDecodePolicy } from '../policy/create-policy.ts'
import type { PolicyName } from '../policy/decode-policy.ts'
import { createPrefillPolicy } from '../policy/prefill-policy.ts'
import { type ConversationSpec, conversationWorkload } from './conversation-workload.ts'
import { quantilesOf } from './histogram.ts'
import { simulate, type TurnCounts } from './simulate.ts'
import type { StudyLibrary } from './study-library.ts'
import { parseTopology } from './topology.ts'

/** `off`: routed like other requests. `keep`: the holder is preferred. `skip`: and may skip prefill. */
export const CONVERSATION_MODES = ['off', 'keep', 'skip'] as const
export type ConversationMode = (typeof CONVERSATION_MODES)[number]

export interface ConversationRun {
  readonly policy: PolicyName
  readonly mode: ConversationMode
  /** Turns per second. */
  readonly rate: number
  /** Of the network between prefill and decode workers. */
  readonly gigabytesPerSecond: number
  readonly turnsReplay: ConversationSpec['turnsReplay']
  readonly seed: number
}

export interface ConversationStudy {
  readonly library: StudyLibrary
  readonly trace: string
  readonly artifact?: string
  readonly profile: string
  readonly topology: string
  readonly seconds: number
  readonly spec: Omit<ConversationSpec, 'turnsReplay'>
  readonly options: Omit<ConversationOptions, 'cost'>
  /** Of each prefill worker. */
  readonly prefixCacheTokens: number
}

export interface ConversationFigures {
  /** From arrival to the first token of decode. */
  readonly ttftP50Ms: number
  readonly ttftP99Ms: number
  readonly tpotP50Ms: number
  readonly tpotP99Ms: number
  readonly batch: number
  readonly requests: number
  readonly turns: TurnCounts
}

export async function runConversations(
  study: ConversationStudy,
  { policy, mode, rate, gigabytesPerSecond, turnsReplay, seed }: ConversationRun,
): Promise<ConversationFigures> {
  const { library, spec, seconds, options } = study
  const topology = parseTopology(study.topology)
  const given = await library.profile(study.profile)
  const profile = { ...given, kv: { ...given.kv, gigabytesPerSecond } }
  const evaluation = await library.evaluation(study.trace, study.artifact, topology.decode)
  const { replay, featuresOf, shape, artifact, domainOf, domains } = evaluation
  const rows = Array.from({ length: replay.rows }, (_, row) => row)
  const rowsOfDomain = domains.map((_, domain) => rows.filter(row => domainOf![row] === domain))
  const load = { seconds, perSecond: rate }
  const { lengths, rows: rowList } = conversationWorkload(
    { ...spec, turnsReplay },
    rowsOfDomain,
    load,
    createRandom(seed),
  )
  const { result, histograms, turns } = simulate({
    workload: { arrivals: { kind: 'recorded', timesUs: lengths.timesUs }, rows: rowList, lengths },
    requests: lengths.timesUs.length,
    seed,
    replay,
    profile,
    topology,
    decodePolicy: createDecodePolicy(policy, {
      workers: topology.decode,
      shape,
      artifact,
      cost: stepParts(profile),
      predictor: evaluation.predictor(),
    })!,
    prefillPolicy: createPrefillPolicy('prefix_hash'),
    featuresOf,
    limits: {
      prefixCacheTokens: study.prefixCacheTokens,
      prefixKeyTokens: spec.firstTokens[0],
      decodeCaching: true,
    },
    conversations:
      mode === 'off'
        ? undefined
        : {
            ...options,
            skipPrefillBelowTokens: mode === 'skip' ? options.skipPrefillBelowTokens : 0,
            cost: turnParts(profile),
          },
    // Until conversations of all ages run at once.
    warmUpShare: 0.4,
  })
  const ttft = quantilesOf(histograms.clientTtftUs, 1e-3)
  return {
    ttftP50Ms: ttft.p50,
    ttftP99Ms: ttft.p99,
    tpotP50Ms: result.tpotMs.p50,
    tpotP99Ms: result.tpotMs.p99,
    batch: result.batch,
    requests: lengths.timesUs.length,
    turns,
  }
}
