/** Text generation, and what is passed to one worker as it is. */
import type { RefusalCode } from '../../http/refusal.ts'
import {
  type Answer,
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
    description: 'The client’s own deadline: a whole number of milliseconds. What is none is passed over.',
    schema: TEXT,
    example: '60000',
  },
  {
    name: 'X-Eldr-Debug',
    in: 'header',
    description:
      'The admin token, or 1 on the machine itself where none is set: the answer then names its workers.',
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
/** Of a stream that has begun these come as an event; of a whole answer, or of one that is put together from parts, as the answer. */
const BROKEN = ['ELDR_STREAM_BROKEN', 'ELDR_STREAM_STALLED'] as const
const GENERATE: readonly RefusalCode[] = ['ELDR_TOO_MANY_CHOICES', ...BUSY, ...PREFILL, ...DECODE, ...BROKEN]

/** What a request can be looked up by while it runs and after. */
const LOOK_UP: JsonObject = {
  lookUp: {
    operationId: 'getRequest',
    parameters: { id: '$response.header.X-Request-Id' },
    description: 'What became of this request.',
  },
}

const generated = (whole: string, chunk: string): Answer => ({
  words:
    'The answer, whole or as server-sent events. An error that comes later is an event with an `error` in place of [DONE].',
  content: { ...json(whole), 'text/event-stream': { events: { message: chunk } } },
  headers: DEBUGGED,
  links: LOOK_UP,
})

/** Routes with two legs. */
export const GENERATE_OPERATIONS: readonly Operation[] = [
  {
    method: 'post',
    path: '/v1/completions',
    id: 'createCompletion',
    tag: 'generation',
    summary: 'Continue a text',
    access: 'client',
    parameters: HEADERS,
    body: {
      required: true,
      content: json('CompletionRequest', { prompt: 'Once upon a time', max_tokens: 4 }),
    },
    answers: { 200: generated('Completion', 'CompletionChunk') },
    refuses: GENERATE,
    passesRefusals: true,
  },
  {
    method: 'post',
    path: '/v1/chat/completions',
    id: 'createChatCompletion',
    tag: 'generation',
    summary: 'Answer a chat',
    access: 'client',
    parameters: HEADERS,
    body: {
      required: true,
      content: json('ChatCompletionRequest', {
        messages: [{ role: 'user', content: 'Hello' }],
        max_tokens: 4,
      }),
    },
    answers: { 200: generated('ChatCompletion', 'ChatCompletionChunk') },
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
  answers: { 200: { words: 'What one decode worker answers, as it is.', content } },
  refuses: [...BUSY, ...DECODE],
  passesRefusals: true,
})

const PATH: Parameter = {
  name: 'path',
  in: 'path',
  description: 'One segment or several: responses, messages, models/NAME and whatever else the engine has.',
  schema: { type: 'string', pattern: '^[A-Za-z0-9_-]+$' },
  example: 'responses',
}
const ANYTHING =
  'Embeddings, scores, audio, images, files, batches and LoRA adapters are refused with 404 ELDR_NOT_GENERATION.'
const ANY: Readonly<Record<string, Media>> = { 'application/json': { schema: {} }, 'text/event-stream': {} }
const OTHER: readonly RefusalCode[] = [...BUSY, ...DECODE, 'ELDR_NOT_GENERATION', 'ELDR_NOT_FOUND']

/** Routes that one decode worker answers. */
export const PASSED_OPERATIONS: readonly Operation[] = [
  passed(
    { method: 'get', path: '/v1/models', id: 'listModels', summary: 'Models that the workers serve' },
    json('Models'),
  ),
  passed(
    {
      method: 'post',
      path: '/tokenize',
      id: 'tokenize',
      summary: 'Token ids of a text or a chat',
      body: { required: true, content: json('TokenizeRequest', { prompt: 'Hello' }) },
    },
    json('Tokens'),
  ),
  passed(
    {
      method: 'post',
      path: '/detokenize',
      id: 'detokenize',
      summary: 'The text of token ids',
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
        summary: 'Any other GET of the engine',
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
        summary: 'Any other POST of the engine',
        description: ANYTHING,
        parameters: [PATH],
        body: { required: false, content: json({ type: 'object' }) },
      },
      ANY,
    ),
    refuses: OTHER,
  },
]
