/** Text generation, and routes that are passed to one decode worker. */
import type { RefusalCode } from '../../http/refusal.ts'
import {
  type ResponseSpec,
  json,
  type JsonObject,
  type Media,
  type Operation,
  type Parameter,
} from './operation.ts'

const TEXT: JsonObject = { type: 'string' }
const DEBUGGED = {
  'X-Eldr-Prefill-Worker': 'PrefillWorker',
  'X-Eldr-Decode-Worker': 'DecodeWorker',
  'X-Eldr-Reason': 'Reason',
}

const HEADERS: readonly Parameter[] = [
  {
    name: 'X-Request-Timeout-Ms',
    in: 'header',
    description: 'Deadline set by the client, in whole milliseconds. Invalid values are ignored.',
    schema: TEXT,
    example: '60000',
  },
  {
    name: 'X-Eldr-Debug',
    in: 'header',
    description:
      'The admin token, or 1 on loopback if no token is set. The response headers then name the workers.',
    schema: TEXT,
    example: '1',
  },
]

const BUSY = [
  'ELDR_UNAUTHORIZED',
  'ELDR_BODY_TOO_LARGE',
  'ELDR_OVERLOADED',
  'ELDR_DRAINING',
  'ELDR_QUEUE_TIMEOUT',
] as const
const DECODE = [
  'ELDR_NO_DECODE_WORKER',
  'ELDR_DECODE_FAILED',
  'ELDR_DECODE_TIMEOUT',
  'ELDR_REQUEST_TIMEOUT',
  'ELDR_DEADLINE',
] as const
const PREFILL = [
  'ELDR_NO_PREFILL_WORKER',
  'ELDR_PREFILL_FAILED',
  'ELDR_PREFILL_TIMEOUT',
  'ELDR_HANDOFF_BAD',
] as const
/** In a stream that has started, these are sent as an event; otherwise as the response. */
const BROKEN = ['ELDR_STREAM_BROKEN', 'ELDR_STREAM_STALLED'] as const
const GENERATE: readonly RefusalCode[] = ['ELDR_TOO_MANY_CHOICES', ...BUSY, ...PREFILL, ...DECODE, ...BROKEN]

/** Link to the state of the request. */
const LOOK_UP: JsonObject = {
  lookUp: {
    operationId: 'getRequest',
    parameters: { id: '$response.header.X-Request-Id' },
    description: 'State and history of this request.',
  },
}

const generated = (whole: string, chunk: string): ResponseSpec => ({
  text: 'The complete response, or a stream of server-sent events. An error in a stream is sent as an event with `error` in place of [DONE].',
  content: { ...json(whole), 'text/event-stream': { events: { message: chunk } } },
  headers: DEBUGGED,
  links: LOOK_UP,
})

/** Routes with a prefill and a decode leg. */
export const GENERATE_OPERATIONS: readonly Operation[] = [
  {
    method: 'post',
    path: '/v1/completions',
    id: 'createCompletion',
    tag: 'generation',
    summary: 'Create a completion',
    access: 'client',
    parameters: HEADERS,
    body: {
      required: true,
      content: json('CompletionRequest', { prompt: 'Once upon a time', max_tokens: 4 }),
    },
    responses: { 200: generated('Completion', 'CompletionChunk') },
    refuses: GENERATE,
    passesRefusals: true,
  },
  {
    method: 'post',
    path: '/v1/chat/completions',
    id: 'createChatCompletion',
    tag: 'generation',
    summary: 'Create a chat completion',
    access: 'client',
    parameters: HEADERS,
    body: {
      required: true,
      content: json('ChatCompletionRequest', {
        messages: [{ role: 'user', content: 'Hello' }],
        max_tokens: 4,
      }),
    },
    responses: { 200: generated('ChatCompletion', 'ChatCompletionChunk') },
    refuses: GENERATE,
    passesRefusals: true,
  },
]

type Passed = Pick<Operation, 'method' | 'path' | 'id' | 'summary'> & Partial<Operation>
const passed = (operation: Passed, content: Readonly<Record<string, Media>>): Operation => ({
  tag: 'generation',
  access: 'client',
  ...operation,
  parameters: [...HEADERS.slice(0, 1), ...(operation.parameters ?? [])],
  responses: { 200: { text: 'Response of one decode worker, unchanged.', content } },
  refuses: [...BUSY, ...DECODE],
  passesRefusals: true,
})

const PATH: Parameter = {
  name: 'path',
  in: 'path',
  description: 'One or more segments: responses, messages, models/NAME or any other route of the engine.',
  schema: { type: 'string', pattern: '^[A-Za-z0-9_-]+$' },
  example: 'responses',
}
const ANYTHING =
  'Embeddings, scores, audio, images, files, batches and LoRA adapters get 404 ELDR_NOT_GENERATION.'
const ANY: Readonly<Record<string, Media>> = { 'application/json': { schema: {} }, 'text/event-stream': {} }
const OTHER: readonly RefusalCode[] = [...BUSY, ...DECODE, 'ELDR_NOT_GENERATION', 'ELDR_NOT_FOUND']

/** Routes that are passed to one decode worker. */
export const PASSED_OPERATIONS: readonly Operation[] = [
  passed(
    { method: 'get', path: '/v1/models', id: 'listModels', summary: 'List the models of the workers' },
    json('Models'),
  ),
  passed(
    {
      method: 'post',
      path: '/tokenize',
      id: 'tokenize',
      summary: 'Tokenize a text or a chat',
      body: { required: true, content: json('TokenizeRequest', { prompt: 'Hello' }) },
    },
    json('Tokens'),
  ),
  passed(
    {
      method: 'post',
      path: '/detokenize',
      id: 'detokenize',
      summary: 'Convert token ids to text',
      body: { required: true, content: json('DetokenizeRequest', { tokens: [1, 2, 3] }) },
    },
    json('DetokenizedText'),
  ),
  {
    ...passed(
      {
        method: 'get',
        path: '/v1/{path}',
        id: 'getOther',
        summary: 'Any other GET route of the engine',
        description: ANYTHING,
        parameters: [PATH],
      },
      ANY,
    ),
    refuses: OTHER,
  },
  {
    ...passed(
      {
        method: 'post',
        path: '/v1/{path}',
        id: 'postOther',
        summary: 'Any other POST route of the engine',
        description: ANYTHING,
        parameters: [PATH],
        body: { required: false, content: json({ type: 'object' }) },
      },
      ANY,
    ),
    refuses: OTHER,
  },
]
