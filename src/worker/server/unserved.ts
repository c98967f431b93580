/**
 * Fields of vLLM’s API that would change the response and are not supported: refused by name, never ignored.
 */
import { badRequest } from './api-error.ts'
import type { Api } from './api-request.ts'
import { type Fields, isRecord } from './fields.ts'

/** Fields that would turn the same text or messages into another prompt. */
export function refuseOtherPrompts(fields: Fields): void {
  refuse({
    prompt_embeds: fields.value('prompt_embeds') !== undefined,
    truncate_prompt_tokens: fields.value('truncate_prompt_tokens') !== undefined,
    add_generation_prompt:
      fields.value('add_generation_prompt') !== undefined && !fields.bool('add_generation_prompt'),
    continue_final_message: fields.bool('continue_final_message'),
    chat_template: fields.value('chat_template') !== undefined,
    chat_template_kwargs: hasMembers(fields, 'chat_template_kwargs'),
    documents: (fields.list('documents') ?? []).length > 0,
  })
}

export function refuseWhatIsNotServed(fields: Fields, api: Api): void {
  const n = fields.whole('n') ?? 1
  if (n < 1) throw badRequest(`n must be at least 1, got ${n}.`, 'n')
  if (n > 1)
    throw badRequest(
      `This worker generates one choice per request (n = 1), got n = ${n}; a gateway in front of it splits such requests.`,
      'n',
    )
  const logprobs = fields.value('logprobs')
  refuse({
    use_beam_search: fields.bool('use_beam_search'),
    echo: fields.bool('echo'),
    suffix: api === 'completions' && (fields.text('suffix') ?? '') !== '',
    best_of: (fields.whole('best_of') ?? 1) > 1,
    logprobs: logprobs !== undefined && logprobs !== false,
    prompt_logprobs: fields.value('prompt_logprobs') !== undefined,
    response_format: (fields.object('response_format')?.text('type') ?? 'text') !== 'text',
    structured_outputs: fields.object('structured_outputs') !== undefined,
    tools:
      api === 'chat' && (fields.list('tools') ?? []).length > 0 && fields.value('tool_choice') !== 'none',
    logit_bias: hasMembers(fields, 'logit_bias'),
    bad_words: (fields.list('bad_words') ?? []).length > 0,
    allowed_token_ids: fields.list('allowed_token_ids') !== undefined,
    logits_processors: (fields.list('logits_processors') ?? []).length > 0,
    watermarking: fields.bool('watermarking'),
    // Generated text never contains special tokens, so their spacing does not matter.
    skip_special_tokens:
      fields.value('skip_special_tokens') !== undefined && !fields.bool('skip_special_tokens'),
  })
  const guided = fields.names().find(name => name.startsWith('guided_') && fields.value(name) !== undefined)
  if (guided !== undefined) refuse({ [guided]: true })
}

/** Replay invents its text, so these fields change nothing; for a model they would. */
export function unfollowedOf(fields: Fields): string[] {
  const asked = {
    presence_penalty: (fields.between('presence_penalty', -2, 2, 'in [-2, 2]') ?? 0) !== 0,
    frequency_penalty: (fields.between('frequency_penalty', -2, 2, 'in [-2, 2]') ?? 0) !== 0,
    repetition_penalty:
      (fields.between('repetition_penalty', Number.MIN_VALUE, Infinity, 'greater than zero') ?? 1) !== 1,
    min_p: (fields.between('min_p', 0, 1, 'in [0, 1]') ?? 0) !== 0,
  }
  return Object.entries(asked)
    .filter(([, is]) => is)
    .map(([name]) => name)
}

function hasMembers(fields: Fields, name: string): boolean {
  fields.object(name)
  const value = fields.value(name)
  return isRecord(value) && Object.keys(value).length > 0
}

function refuse(asked: Readonly<Record<string, boolean>>): void {
  for (const [name, is] of Object.entries(asked))
    if (is) throw badRequest(`This worker does not support ${name.slice(0, 100)}.`, name.slice(0, 100))
}
