/** Sends one calibration request and decides what its response means for the run. */
import { EldrError } from '../errors.ts'
import { type Endpoint } from '../load/endpoint.ts'
import { bodyErrorText } from '../load/exchange.ts'
import { type Prompt, seedOf } from '../load/request-source.ts'
import type { Captured, Skip } from './captured.ts'
import { type ApiChoice, apiOf } from './prompts.ts'
import { readResponse } from './read-response.ts'

export interface SendSettings {
  readonly endpoint: Endpoint
  readonly model: string
  readonly api: ApiChoice
  /** Decode steps to record; one token more is generated, which is never fed back. */
  readonly steps: number
  readonly ignoreEos: boolean
  readonly temperature: number
  readonly seed: number
  /** Alternating names and values. */
  readonly headers: readonly string[]
  readonly timeoutMs: number
  /** Minimum share of prompt tokens with known experts; requests below it are skipped. */
  readonly minCovered: number
  readonly skipRefused: boolean
}

/** One prompt of the file, to be sent. */
export interface PromptLineRequest {
  readonly request: number
  readonly line: number
  readonly prompt: Prompt
}

export type Outcome =
  | { readonly kind: 'captured'; readonly captured: Captured }
  | { readonly kind: 'skipped'; readonly skip: Skip; readonly why: string }
  /** The server is unreachable or busy: retry the same request later. */
  | { readonly kind: 'retry'; readonly why: string; readonly status?: number; readonly afterMs?: number }

/** Far above any response, far below the maximum length of a string. */
const MAX_RESPONSE_BYTES = 256 << 20
const TOO_LONG =
  /maximum (context|model|sequence) length|context (length|window)|max_model_len|longer than the maximum|too many (input )?tokens/i
/** The model's context length in the error message of a request that is too long. */
const MODEL_LENGTH =
  /(?:maximum (?:context|model|sequence) length|context (?:length|window)|max_model_len)[^0-9.]{0,40}(\d+)/i
const TOO_MANY_STEPS =
  /max_(completion_)?tokens\b[^.]{0,60}(cannot be greater than|must not be greater than|must be (at most|less than))/i
const BUSY_STATUSES = new Set([408, 409, 425, 429])

/** Throws if no other request could succeed either; that ends the run. */
export async function sendPrompt(
  settings: SendSettings,
  { request, line, prompt }: PromptLineRequest,
  stop: AbortSignal,
): Promise<Outcome> {
  const { endpoint, api, timeoutMs, headers } = settings
  const path = `${endpoint.root}/${apiOf(prompt, api) === 'chat' ? 'chat/completions' : 'completions'}`
  const timeout = AbortSignal.timeout(timeoutMs)
  let status: number
  let text: string
  let retryAfter: unknown
  try {
    const response = await endpoint.pool.request({
      method: 'POST',
      path,
      headers: ['content-type', 'application/json', 'accept', 'application/json', ...headers],
      body: bodyOf(settings, request, prompt),
      signal: AbortSignal.any([stop, timeout]),
    })
    status = response.statusCode
    retryAfter = response.headers['retry-after']
    text = await textOf(response.body, line)
  } catch (error) {
    if (error instanceof EldrError) throw error
    stop.throwIfAborted()
    const why = timeout.aborted
      ? `no response within ${timeoutMs / 1000} s`
      : (error as Error).message || String((error as NodeJS.ErrnoException).code)
    return { kind: 'retry', why }
  }
  if (status === 200) return captured(text, settings, line)
  return rejected(settings, line, status, bodyErrorText(text), retryAfter)
}

function captured(text: string, { steps, minCovered }: SendSettings, line: number): Outcome {
  let body: unknown
  try {
    body = JSON.parse(text)
  } catch (cause) {
    throw new EldrError('ELDR_ENDPOINT_FAILED', {
      found: `a response to line ${line} that is not JSON`,
      expected: 'a completion',
      cause,
    })
  }
  const found = readResponse(body, steps, `line ${line}`)
  if (found.covered >= minCovered * found.tokens) return { kind: 'captured', captured: found }
  return {
    kind: 'skipped',
    skip: 'not_covered',
    why: `experts known for ${found.covered} of ${found.tokens} prompt tokens`,
  }
}

function rejected(
  settings: SendSettings,
  line: number,
  status: number,
  message: string,
  retryAfter: unknown,
): Outcome {
  const { skipRefused, endpoint, steps } = settings
  if (status === 400 && exceedsContext(steps, message))
    throw new EldrError('ELDR_ENDPOINT_FAILED', {
      found: `status ${status} for line ${line} from ${endpoint.origin}, which any prompt would get (${message})`,
      expected: `a model with room for ${steps + 1} tokens after a prompt`,
      todo: 'Use fewer --steps.',
    })
  if (status === 413 || (status === 400 && TOO_LONG.test(message)))
    return { kind: 'skipped', skip: 'too_long', why: message }
  if (BUSY_STATUSES.has(status) || (status >= 500 && status !== 501)) {
    const seconds = Number(retryAfter)
    return {
      kind: 'retry',
      why: `status ${status}: ${message}`,
      status,
      afterMs: seconds > 0 ? 1000 * Math.min(60, seconds) : undefined,
    }
  }
  const isPromptError = status === 400 || status === 422
  if (isPromptError && skipRefused) return { kind: 'skipped', skip: 'refused', why: message }
  throw new EldrError('ELDR_ENDPOINT_FAILED', {
    found: `status ${status} for line ${line} from ${endpoint.origin} (${message})`,
    expected: 'status 200',
    todo: isPromptError
      ? 'Change the line or the options; --skip-refused skips prompts that the server rejects.'
      : status === 401 || status === 403
        ? 'Pass the key with --api-key or OPENAI_API_KEY.'
        : undefined,
  })
}

/** True if the steps leave no room for any prompt. */
function exceedsContext(steps: number, message: string): boolean {
  const length = MODEL_LENGTH.exec(message)?.[1]
  return length === undefined ? TOO_MANY_STEPS.test(message) : steps + 1 >= Number(length)
}

function bodyOf(
  { model, api, steps, ignoreEos, temperature, seed }: SendSettings,
  request: number,
  prompt: Prompt,
): string {
  const isChat = apiOf(prompt, api) === 'chat'
  const input =
    typeof prompt === 'object' && 'messages' in prompt
      ? prompt
      : isChat
        ? { messages: [{ role: 'user', content: prompt }] }
        : { prompt }
  return JSON.stringify({
    model,
    ...input,
    max_tokens: steps + 1,
    ignore_eos: ignoreEos ? true : undefined,
    temperature,
    seed: temperature > 0 ? seedOf(seed, request) : undefined,
    stream: false,
    kv_transfer_params: { eldr: { record: 'decode' } },
  })
}

async function textOf(body: AsyncIterable<Uint8Array>, line: number): Promise<string> {
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of body) {
    chunks.push(chunk)
    bytes += chunk.length
    if (bytes > MAX_RESPONSE_BYTES)
      throw new EldrError('ELDR_ENDPOINT_FAILED', {
        found: `a response of more than ${MAX_RESPONSE_BYTES} bytes to line ${line}`,
        expected: 'a smaller response',
        todo: 'Use fewer --steps.',
      })
  }
  return Buffer.concat(chunks).toString('utf8')
}
