/**
 * Request and response schemas of text generation. They allow other members, which are passed on unchanged:
 * engines support more than is listed here.
 */
import * as z from 'zod'
import { REFUSALS, type RefusalCode } from '../../http/refusal.ts'

const tokenIds = () => z.array(z.int().min(0)).min(1)
const limit = () => z.int().min(1).nullish()

const shared = {
  model: z.string().nullish().describe('Model name, as in GET /v1/models.'),
  max_tokens: limit().describe('Max number of generated tokens.'),
  stream: z.boolean().nullish().describe('Stream server-sent events, terminated by [DONE].'),
  stream_options: z
    .looseObject({
      include_usage: z.boolean().nullish().describe('Send a final event with the token usage.'),
    })
    .nullish()
    .describe('For streams only.'),
  n: z
    .int()
    .min(1)
    .max(10_000)
    .nullish()
    .describe('Choices per prompt. Total over all prompts: at most limits.maxChoices.'),
  temperature: z.number().min(0).nullish(),
  top_p: z.number().gt(0).max(1).nullish(),
  seed: z.int().nullish().describe('Choice c uses seed + c.'),
  stop: z.union([z.string().min(1), z.array(z.string().min(1))]).nullish(),
}

export const completionRequest = z
  .looseObject({
    ...shared,
    prompt: z
      .union([z.string().min(1), tokenIds(), z.array(z.string().min(1)).min(1), z.array(tokenIds()).min(1)])
      .describe('Text or token ids, or a list of either.'),
  })
  .describe('All other members are passed to the workers unchanged, except kv_transfer_params.')

const part = z.union([z.string(), z.looseObject({ type: z.string(), text: z.string().nullish() })])
export const chatRequest = z
  .looseObject({
    ...shared,
    max_completion_tokens: limit().describe('Replaces max_tokens.'),
    messages: z
      .array(z.looseObject({ role: z.string(), content: z.union([z.string(), z.array(part)]).nullish() }))
      .min(1),
  })
  .describe('All other members are passed to the workers unchanged, except kv_transfer_params.')

const usage = z.looseObject({
  prompt_tokens: z.int().min(0),
  completion_tokens: z.int().min(0),
  total_tokens: z.int().min(0),
})
const head = { id: z.string(), created: z.int(), model: z.string() }
const finish = z
  .string()
  .nullish()
  .describe('stop, length or tool_calls; null while the choice is not finished.')

export const completion = z.looseObject({
  ...head,
  object: z.literal('text_completion'),
  choices: z.array(z.looseObject({ index: z.int().min(0), text: z.string(), finish_reason: finish })),
  usage: usage.nullish(),
})

export const chatCompletion = z.looseObject({
  ...head,
  object: z.literal('chat.completion'),
  choices: z.array(
    z.looseObject({
      index: z.int().min(0),
      message: z.looseObject({ role: z.string(), content: z.string().nullish() }),
      finish_reason: finish,
    }),
  ),
  usage: usage.nullish(),
})

export const completionChunk = completion.describe('Data of one stream event.')

export const chatChunk = z
  .looseObject({
    ...head,
    object: z.literal('chat.completion.chunk'),
    choices: z.array(
      z.looseObject({
        index: z.int().min(0),
        delta: z.looseObject({ role: z.string().nullish(), content: z.string().nullish() }),
        finish_reason: finish,
      }),
    ),
    usage: usage.nullish(),
  })
  .describe('Data of one stream event.')

export const models = z.looseObject({
  object: z.literal('list'),
  data: z.array(z.looseObject({ id: z.string(), object: z.string(), max_model_len: z.int().nullish() })),
})

const named = { model: z.string().nullish() }
export const tokenizeRequest = z
  .union([
    z.looseObject({ ...named, prompt: completionRequest.shape.prompt }),
    z.looseObject({ ...named, messages: chatRequest.shape.messages }),
  ])
  .describe('A text, or a chat that is formatted with the model’s chat template.')
export const tokens = z.looseObject({
  count: z.int().min(0),
  max_model_len: z.int(),
  tokens: z.array(z.int()),
})
export const detokenizeRequest = z.looseObject({ ...named, tokens: z.array(z.int().min(0)) })
export const text = z.looseObject({ prompt: z.string() })

export const CODES = Object.keys(REFUSALS) as [RefusalCode, ...RefusalCode[]]

export const gatewayError = z
  .strictObject({
    error: z.strictObject({
      message: z.string(),
      type: z.enum(['invalid_request_error', 'server_error']),
      param: z.string().nullable().describe('The invalid member of the request body.'),
      code: z.enum(CODES).describe('Stable error code; see docs/reference/errors.md.'),
    }),
  })
  .describe('Error of the gateway, in OpenAI’s format.')

export const workerError = z
  .looseObject({ error: z.looseObject({ message: z.string() }).optional() })
  .describe('Error of a worker, passed on unchanged. In vLLM, error.code is the status.')
