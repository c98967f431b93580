/** Which requests can be resumed. Only what is known to be right: any other field refuses. */
import { type ClientRequest, last } from '../../http/client-request.ts'
import type { Member } from '../../json/scan.ts'
import type { NotResumed } from './progress.ts'

/** What resumption must know of a request. */
export interface ResumeTraits {
  readonly refused: NotResumed | undefined
  /** The most likely token is taken: nothing is drawn. */
  readonly greedy: boolean
  readonly seeded: boolean
  /** The client wants the token ids itself. */
  readonly wantsIds: boolean
  /** Characters that a worker may hold back, because they may start a stop string. */
  readonly heldCharacters: number
}

/** As in vLLM. */
const GREEDY_BELOW = 1e-5
/** A field that is read here is small. */
const MAX_BYTES = 65_536

type Check = (value: unknown) => NotResumed | undefined

const fine: Check = () => undefined
const only =
  (why: NotResumed, ...allowed: readonly unknown[]): Check =>
  value =>
    allowed.includes(value) ? undefined : why
const empty =
  (why: NotResumed): Check =>
  value =>
    Array.isArray(value) && value.length === 0 ? undefined : why
const text: Check = value => ((value as { type?: unknown }).type === 'text' ? undefined : 'guided')

/** By field. Null counts as absent. */
const FIELDS: ReadonlyMap<string, Check> = new Map<string, Check>([
  // Not read: they only describe the prompt, or change nothing in it.
  ...['model', 'prompt', 'messages', 'stream', 'stream_options', 'user', 'request_id', 'priority', 'metadata']
    .concat(['store', 'service_tier', 'cache_salt', 'eldr_row', 'return_token_ids', 'add_special_tokens'])
    .concat(['add_generation_prompt', 'continue_final_message', 'chat_template', 'chat_template_kwargs'])
    .concat(['documents', 'safety_identifier', 'prompt_cache_key', 'verbosity'])
    .map((name): [string, Check] => [name, fine]),
  // The same for every token, wherever it is generated.
  ...['temperature', 'top_p', 'top_k', 'min_p', 'seed', 'logit_bias', 'allowed_token_ids', 'ignore_eos']
    .concat(['max_tokens', 'max_completion_tokens', 'min_tokens', 'stop', 'stop_token_ids'])
    .concat(['include_stop_str_in_output', 'spaces_between_special_tokens'])
    .map((name): [string, Check] => [name, fine]),
  ['n', only('field', 1)],
  ['best_of', only('field', 1)],
  ['echo', only('field', false)],
  ['suffix', only('field', '')],
  ['use_beam_search', only('field', false)],
  ['skip_special_tokens', only('field', true)],
  ['bad_words', empty('field')],
  ['logprobs', only('logprobs', false)],
  ['top_logprobs', only('logprobs')],
  ['prompt_logprobs', only('logprobs')],
  ['response_format', text],
  ['structured_outputs', only('guided')],
  ['tools', empty('tools')],
  ['functions', empty('tools')],
  ['tool_choice', only('tools', 'none', 'auto')],
  ['parallel_tool_calls', fine],
  ['presence_penalty', only('penalties', 0)],
  ['frequency_penalty', only('penalties', 0)],
  ['repetition_penalty', only('penalties', 1)],
])

export function resumeTraits({ body, members, seed }: ClientRequest): ResumeTraits {
  let refused: NotResumed | undefined
  const values: Record<string, unknown> = {}
  for (const member of members) {
    const { name } = member
    const check = FIELDS.get(name)
    if (check === fine && !READ.has(name)) continue
    const value = valueOf(body, member)
    if (value === null) continue
    values[name] = value
    refused ??= check === undefined ? (name.startsWith('guided_') ? 'guided' : 'field') : check(value)
  }
  const { temperature, stop } = values
  return {
    refused,
    greedy: typeof temperature === 'number' && temperature < GREEDY_BELOW,
    seeded: seed !== undefined,
    wantsIds: values['return_token_ids'] === true,
    heldCharacters: longest(stop) - 1,
  }
}

const READ = new Set(['temperature', 'stop', 'return_token_ids'])

/** Undefined for a value that is not JSON, or too large. */
function valueOf(body: Buffer, { valueStart, end }: Member): unknown {
  if (end - valueStart > MAX_BYTES) return undefined
  try {
    return JSON.parse(body.toString('utf8', valueStart, end)) as unknown
  } catch {
    return undefined
  }
}

/** Length of the longest stop string; 1 if there is none. */
function longest(stop: unknown): number {
  const stops: unknown[] = Array.isArray(stop) ? stop : [stop]
  return stops.reduce(
    (most: number, each) => (typeof each === 'string' ? Math.max(most, each.length) : most),
    1,
  )
}

/** Images and sound are not in the token ids of a prompt. */
export function hasOtherThanText({ api, body, members }: ClientRequest): boolean {
  if (api !== 'chat') return false
  const { valueStart, end } = last(members, 'messages')!
  try {
    const messages = JSON.parse(body.toString('utf8', valueStart, end)) as readonly { content?: unknown }[]
    return messages.some(
      ({ content }) =>
        Array.isArray(content) && content.some(part => (part as { type?: unknown } | null)?.type !== 'text'),
    )
  } catch {
    return true
  }
}
