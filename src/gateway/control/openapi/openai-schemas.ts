/**
 * Requests and answers of text generation. Engines take more than is named here, and say more: everything else is passed on as it is, so
 * that these schemas are open.
 */
import * as z from 'zod'
import { REFUSALS, type RefusalCode } from '../../http/refusal.ts'

const tokenIds = () => z.array(z.int().min(0)).min(1)
const limit = () => z.int().min(1).nullish()

const shared = {
  model: z.string().nullish().describe('As GET /v1/models names it.'),
  max_tokens: limit().describe('Longest answer.'),
  stream: z.boolean().nullish().describe('Server-sent events, ended by [DONE].'),
  stream_options: z
    .looseObject({ include_usage: z.boolean().nullish().describe('A last event with the usage.') })
    .nullish()
    .describe('Of a stream only.'),
  n: z
    .int()
    .min(1)
    .max(10_000)
    .nullish()
    .describe('Choices of each prompt; limits.maxChoices of all together.'),
  temperature: z.number().min(0).nullish(),
  top_p: z.number().gt(0).max(1).nullish(),
  seed: z.int().nullish().describe('Choice c gets seed + c.'),
  stop: z.union([z.string().min(1), z.array(z.string().min(1))]).nullish(),
}

export const completionRequest = z
  .looseObject({
    ...shared,
    prompt: z
      .union([z.string().min(1), tokenIds(), z.array(z.string().min(1)).min(1), z.array(tokenIds()).min(1)])
      .describe('Text or token ids, or a list of either.'),
  })
  .describe('Every other member is passed to the workers as it is, but for kv_transfer_params.')

const part = z.union([z.string(), z.looseObject({ type: z.string(), text: z.string().nullish() })])
export const chatRequest = z
  .looseObject({
    ...shared,
    max_completion_tokens: limit().describe('Takes the place of max_tokens.'),
    messages: z
      .array(z.looseObject({ role: z.string(), content: z.union([z.string(), z.array(part)]).nullish() }))
      .min(1),
  })
  .describe('Every other member is passed to the workers as it is, but for kv_transfer_params.')

const usage = z.looseObject({
  prompt_tokens: z.int().min(0),
  completion_tokens: z.int().min(0),
  total_tokens: z.int().min(0),
})
const head = { id: z.string(), created: z.int(), model: z.string() }
const finish = z.string().nullish().describe('stop, length, tool_calls; null while it goes on.')

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

export const completionChunk = completion.describe('The data of one event of a stream.')

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
  .describe('The data of one event of a stream.')

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
  .describe('A text, or a chat as the model’s template makes one of it.')
export const tokens = z.looseObject({
  count: z.int().min(0),
  max_model_len: z.int(),
  tokens: z.array(z.int()),
})
export const detokenizeRequest = z.looseObject({ ...named, tokens: z.array(z.int().min(0)) })
export const text = z.looseObject({ prompt: z.string() })

export const CODES = Object.keys(REFUSALS) as [RefusalCode, ...RefusalCode[]]

export const errorAnswer = z
  .strictObject({
    error: z.strictObject({
      message: z.string(),
      type: z.enum(['invalid_request_error', 'server_error']),
      param: z.string().nullable().describe('The member of the body that is wrong.'),
      code: z.enum(CODES).describe('Stable; docs/reference/errors.md has them all.'),
    }),
  })
  .describe('What the gateway itself says when it cannot serve a request, in OpenAI’s shape.')

export const workerError = z
  .looseObject({ error: z.looseObject({ message: z.string() }).optional() })
  .describe(
    'What a worker says of a request that it does not take, passed on as it is. vLLM puts the status into error.code.',
  )
