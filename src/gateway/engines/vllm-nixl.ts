/**
 * vLLM with its NIXL connector in pull mode (vLLM 0.20 to 0.32): two requests, the hand-off in
 * `kv_transfer_params`.
 */
import { type ClientRequest, last } from '../http/client-request.ts'
import { editObject } from '../json/edit.ts'
import { type Member, scanList, scanObject } from '../json/scan.ts'
import type { EngineAdapter, EngineOptions, Handoff, HandoffResult } from './engine.ts'
import { bytesOf, countsBytes, valueOf } from './handoff-counts.ts'
import { isWrongRank, wrongRankWords } from './wrong-rank.ts'

const ASK_FOR_HANDOFF =
  '{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}'

/** Without these a decode worker fetches nothing, and reports no error. */
const NEEDED = [
  'remote_block_ids',
  'remote_engine_id',
  'remote_request_id',
  'remote_host',
  'remote_port',
] as const

const [OPEN_LIST, LOWER_N] = [0x5b, 0x6e]

/**
 * After this time a live decode worker has accepted a request, if only into its queue, and aborting it frees
 * the blocks. Before that vLLM frees nothing, because its engine does not have the request yet.
 */
const ACCEPTED_AFTER_MS = 1_000

export function vllmNixl({ reuseTokenIds }: EngineOptions): EngineAdapter {
  return {
    name: 'vllm-nixl',
    legOrder: 'decode_after_prefill',
    // With its prefix cache, which is on by default, a decode worker pulls only the blocks that it lacks.
    keepsKv: true,
    reservedFields: ['kv_transfer_params'],
    tokenLimits: { chat: ['max_completion_tokens', 'max_tokens'], completions: ['max_tokens'] },
    passedHeaders: ['x-vllm-priority'],
    // vLLM's streams have no such field.
    privateFields: { response: ['kv_transfer_params'], event: [] },

    prefillBody({ api, body, members }) {
      return editObject(body, members, {
        kv_transfer_params: ASK_FOR_HANDOFF,
        ...oneToken(members),
        ...(reuseTokenIds && api === 'chat' && { return_token_ids: 'true' }),
      })
    },

    readHandoff(response, { api }): HandoffResult {
      const members = scanObject(response)
      if (members === undefined) return invalid('the prefill response is not a JSON object')
      const params = last(members, 'kv_transfer_params')
      const inside = params && scanObject(response, params.valueStart, params.end)
      if (inside === undefined)
        return invalid('no kv_transfer_params in the prefill response: is a KV connector configured there?')
      const missing = NEEDED.find(name => isNullish(response, last(inside, name)))
      if (missing !== undefined) return invalid(`no ${missing} in kv_transfer_params`)
      const ids = reuseTokenIds && api === 'chat' ? last(members, 'prompt_token_ids') : undefined
      const hasIds = ids !== undefined && response[ids.valueStart] === OPEN_LIST
      const handoff: Handoff = {
        transfer: editObject(response, inside, {
          eldr: undefined,
          ...(hasIds && { prompt_token_ids: bytesOf(response, ids) }),
        }),
        counts: countsBytes(response, last(inside, 'eldr')),
        routedExperts: textOf(valueOf(response, routedExpertsOf(response, members))),
        engineId: textOf(valueOf(response, last(inside, 'remote_engine_id'))),
        promptTokens: promptTokensOf(valueOf(response, last(members, 'usage'))),
      }
      return { kind: 'handed_off', handoff }
    },

    decodeBody: ({ body, members }, { transfer }, _worker, more) =>
      editObject(body, members, { kv_transfer_params: transfer, ...more }),
    aloneBody: ({ body, members }, _worker, more) =>
      more === undefined ? body : editObject(body, members, more),
    resumption: { idFields: { return_token_ids: 'true' }, continuation },

    handoffAfter({ kind, status, sent }) {
      if (kind === 'served') return status === 200 ? 'used' : 'refused'
      if (sent !== true) return 'unseen'
      // The prefill worker may be gone with the blocks.
      if (status === 500) return 'missed'
      // The API server refuses these before its engine has them. Whether the blocks are freed depends on the
      // version and on the layer that refuses, and reading freed blocks would give wrong text.
      if (status === 429 || status === 503) return 'refused'
      return 'used'
    },

    // A decode request of one token. Releasing a hand-off twice is harmless.
    releaseRequest({ request: { body, members }, path, handoff: { transfer }, decode }) {
      if (decode === undefined) return undefined
      const release = editObject(body, members, { kv_transfer_params: transfer, ...oneToken(members) })
      return { worker: decode, path, body: release, abortAfterMs: ACCEPTED_AFTER_MS }
    },

    // Without this header vLLM picks a rank itself.
    rankHeaders: ({ dpRank }) =>
      dpRank === undefined ? undefined : { 'x-data-parallel-rank': String(dpRank) },

    missingRank: ({ dpRank }, status, body) =>
      isWrongRank(dpRank, status, body) ? wrongRankWords(dpRank) : undefined,
  }
}

/** Fields of a chat that a completion does not have. Ids need no template. */
const CHAT_FIELDS = [
  'messages',
  'max_completion_tokens',
  'chat_template',
  'chat_template_kwargs',
  'add_generation_prompt',
  'continue_final_message',
  'documents',
  'add_special_tokens',
  'tools',
  'tool_choice',
  'functions',
  'parallel_tool_calls',
  'logprobs',
  'response_format',
]

function continuation(
  { api, body, members, maxTokens }: ClientRequest,
  ids: string,
  generated: number,
): Buffer {
  const least = valueOf(body, last(members, 'min_tokens'))
  return editObject(body, members, {
    ...(api === 'chat' && Object.fromEntries(CHAT_FIELDS.map(name => [name, undefined]))),
    prompt: ids,
    // Null: up to the end of the context, as in a chat.
    max_tokens: maxTokens === undefined ? 'null' : String(maxTokens - generated),
    ...(typeof least === 'number' && { min_tokens: String(Math.max(0, least - generated)) }),
    // For the embedded worker; vLLM ignores it.
    eldr_generated: String(generated),
  })
}

function invalid(why: string): HandoffResult {
  return { kind: 'invalid', why }
}

/** Whatever the client asked for: one token, not streamed. */
const oneToken = (members: ClientRequest['members']) => ({
  stream: 'false',
  max_tokens: '1',
  ...(last(members, 'max_completion_tokens') !== undefined && { max_completion_tokens: '1' }),
  // vLLM refuses the first without a stream, and the others when they exceed max_tokens.
  stream_options: undefined,
  min_tokens: undefined,
  min_completion_tokens: undefined,
})

/** From the one choice of a prefill response. */
function routedExpertsOf(response: Buffer, members: readonly Member[]): Member | undefined {
  const choices = last(members, 'choices')
  const [first] = (choices && scanList(response, choices.valueStart, choices.end, 1)) ?? []
  return last((first && scanObject(response, first.start, first.end)) ?? [], 'routed_experts')
}

function isNullish(bytes: Buffer, member: Member | undefined): boolean {
  return (
    member === undefined || (bytes[member.valueStart] === LOWER_N && member.end - member.valueStart === 4)
  )
}

function textOf(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined
}

function promptTokensOf(usage: unknown): number | undefined {
  const tokens = (usage as { prompt_tokens?: unknown } | null | undefined)?.prompt_tokens
  return typeof tokens === 'number' && Number.isFinite(tokens) ? tokens : undefined
}
