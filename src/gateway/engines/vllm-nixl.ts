/** vLLM with its NIXL connector in pull mode (vLLM 0.20 to 0.32): two requests, the hand-off in `kv_transfer_params`. */
import { editObject } from '../json/edit.ts'
import { type Member, scanList, scanObject } from '../json/scan.ts'
import { type ClientRequest, last } from '../http/client-request.ts'
import type { EngineAdapter, Handoff } from './engine.ts'

const ASK_FOR_HANDOFF =
  '{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}'

/** Without these a decode worker does not fetch anything, and says nothing. */
const NEEDED = [
  'remote_block_ids',
  'remote_engine_id',
  'remote_request_id',
  'remote_host',
  'remote_port',
] as const

export interface VllmOptions {
  /** Ask prefill for the prompt's token ids and give them to decode, so that a chat's template and the tokenizer run once. */
  readonly reuseTokenIds: boolean
  /** Counts are left as they came (`countsIn` reads them): another process will look at them. */
  readonly rawCounts?: true
}

export function vllmNixl({ reuseTokenIds, rawCounts }: VllmOptions): EngineAdapter {
  return {
    name: 'vllm-nixl',
    prefillBody({ api, body, members }) {
      return editObject(body, members, {
        kv_transfer_params: ASK_FOR_HANDOFF,
        ...oneToken(members),
        ...(reuseTokenIds && api === 'chat' && { return_token_ids: 'true' }),
      })
    },

    readHandoff(answer, { api }) {
      const members = scanObject(answer)
      const params = members && last(members, 'kv_transfer_params')
      const inside = params && scanObject(answer, params.valueStart, params.end)
      if (members === undefined) return 'prefill’s answer is not a JSON object'
      if (inside === undefined)
        return 'no kv_transfer_params in prefill’s answer: is a KV connector configured there?'
      const missing = NEEDED.find(name => isNullish(answer, last(inside, name)))
      if (missing !== undefined) return `no ${missing} in kv_transfer_params`
      const ids = reuseTokenIds && api === 'chat' ? last(members, 'prompt_token_ids') : undefined
      const idsText =
        ids !== undefined && answer[ids.valueStart] === 0x5b
          ? answer.subarray(ids.valueStart, ids.end)
          : undefined
      return {
        transfer: editObject(answer, inside, {
          eldr: undefined,
          ...(idsText && { prompt_token_ids: idsText }),
        }),
        counts: (rawCounts ? bytesOf : countsOf)(answer, last(inside, 'eldr')),
        routedExperts: textOf(valueOf(answer, routedExpertsOf(answer, members))),
        engineId: textOf(valueOf(answer, last(inside, 'remote_engine_id'))),
        promptTokens: promptTokensOf(valueOf(answer, last(members, 'usage'))),
      } satisfies Handoff
    },

    decodeBody: ({ body, members }: ClientRequest, { transfer }: Handoff) =>
      editObject(body, members, { kv_transfer_params: transfer }),

    releaseBody: ({ body, members }: ClientRequest, { transfer }: Handoff) =>
      editObject(body, members, { kv_transfer_params: transfer, ...oneToken(members) }),
  }
}

/** Whatever the client asked for: one token, not streamed. */
const oneToken = (members: readonly Member[]) => ({
  stream: 'false',
  max_tokens: '1',
  ...(last(members, 'max_completion_tokens') !== undefined && { max_completion_tokens: '1' }),
  // vLLM refuses the first without a stream, and the others when they ask for more than max_tokens.
  stream_options: undefined,
  min_tokens: undefined,
  min_completion_tokens: undefined,
})

/** Of the one choice that a prefill leg has. */
function routedExpertsOf(answer: Buffer, members: readonly Member[]): Member | undefined {
  const choices = last(members, 'choices')
  const [first] = (choices && scanList(answer, choices.valueStart, choices.end, 1)) ?? []
  return last((first && scanObject(answer, first.start, first.end)) ?? [], 'routed_experts')
}

function isNullish(bytes: Buffer, member: Member | undefined): boolean {
  return member === undefined || (bytes[member.valueStart] === 0x6e && member.end - member.valueStart === 4)
}

function valueOf(bytes: Buffer, member: Member | undefined): unknown {
  if (member === undefined) return undefined
  try {
    return JSON.parse(bytes.toString('utf8', member.valueStart, member.end)) as unknown
  } catch {
    return undefined
  }
}

const [QUOTE, BACKSLASH] = [0x22, 0x5c]

function bytesOf(bytes: Buffer, member: Member | undefined): Buffer | undefined {
  return member && bytes.subarray(member.valueStart, member.end)
}

/** Of bytes that were left raw. */
export function countsIn(raw: Buffer): unknown {
  return countsOf(raw, { name: 'eldr', start: 0, valueStart: 0, end: raw.length })
}

/** What the plugin says of a prompt's experts. Its large members are base64, which is taken as it stands instead of being parsed. */
function countsOf(bytes: Buffer, eldr: Member | undefined): unknown {
  const members = eldr && scanObject(bytes, eldr.valueStart, eldr.end)
  if (members === undefined) return valueOf(bytes, eldr)
  const counts: Record<string, unknown> = {}
  for (const member of members) {
    const { name, valueStart, end } = member
    if (name !== 'counts' && name !== 'recent') counts[name] = valueOf(bytes, member)
    else if (bytes[valueStart] !== QUOTE || bytes.subarray(valueStart, end).includes(BACKSLASH))
      counts[name] = valueOf(bytes, member)
    else counts[name] = bytes.toString('latin1', valueStart + 1, end - 1)
  }
  return counts
}

function textOf(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined
}

function promptTokensOf(usage: unknown): number | undefined {
  const tokens = (usage as { prompt_tokens?: unknown } | null | undefined)?.prompt_tokens
  return typeof tokens === 'number' && Number.isFinite(tokens) ? tokens : undefined
}
