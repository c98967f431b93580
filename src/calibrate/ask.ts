/** One calibration request: what is sent, and what its answer means for the run. */
import { EldrError } from '../errors.ts'
import { type Endpoint } from '../load/endpoint.ts'
import { bodyErrorText } from '../load/exchange.ts'
import { type Prompt, seedOf } from '../load/request-source.ts'
import type { Captured, Skip } from './captured.ts'
import { type ApiChoice, apiOf } from './prompts.ts'
import { readAnswer } from './read-answer.ts'

export interface AskSettings {
  readonly endpoint: Endpoint
  readonly model: string
  readonly api: ApiChoice
  /** Decode steps that are wanted; a token more is generated, which is never fed back. */
  readonly steps: number
  readonly ignoreEos: boolean
  readonly temperature: number
  readonly seed: number
  /** Names and values in turn. */
  readonly headers: readonly string[]
  readonly timeoutMs: number
  /** Share of the prompt's tokens; requests below are skipped. */
  readonly minCovered: number
  readonly skipRefused: boolean
}

export interface Question {
  readonly request: number
  readonly line: number
  readonly prompt: Prompt
}

export type Outcome =
  | { readonly kind: 'captured'; readonly captured: Captured }
  | { readonly kind: 'skipped'; readonly skip: Skip; readonly why: string }
  /** The server is away or too busy: the same request may be answered later. */
  | { readonly kind: 'again'; readonly why: string; readonly status?: number; readonly afterMs?: number }

/** Far above any answer, far below what a text can hold. */
const MOST_ANSWER_BYTES = 256 << 20
const TOO_LONG =
  /maximum (context|model|sequence) length|context (length|window)|max_model_len|longer than the maximum|too many (input )?tokens/i
/** The length of the model, as engines name it beside a request that is too long. */
const MODEL_LENGTH =
  /(?:maximum (?:context|model|sequence) length|context (?:length|window)|max_model_len)[^0-9.]{0,40}(\d+)/i
const TOO_MANY_STEPS =
  /max_(completion_)?tokens\b[^.]{0,60}(cannot be greater than|must not be greater than|must be (at most|less than))/i
const WHILE_BUSY = new Set([408, 409, 425, 429])

/** Throws what ends the run: an answer that no other request would change. */
export async function ask(
  settings: AskSettings,
  { request, line, prompt }: Question,
  stop: AbortSignal,
): Promise<Outcome> {
  const { endpoint, api, timeoutMs, headers } = settings
  const path = `${endpoint.root}/${apiOf(prompt, api) === 'chat' ? 'chat/completions' : 'completions'}`
  const timeout = AbortSignal.timeout(timeoutMs)
  let status: number
  let text: string
  let retryAfter: unknown
  try {
    const answer = await endpoint.pool.request({
      method: 'POST',
      path,
      headers: ['content-type', 'application/json', 'accept', 'application/json', ...headers],
      body: bodyOf(settings, request, prompt),
      signal: AbortSignal.any([stop, timeout]),
    })
    status = answer.statusCode
    retryAfter = answer.headers['retry-after']
    text = await textOf(answer.body, line)
  } catch (error) {
    if (error instanceof EldrError) throw error
    stop.throwIfAborted()
    const why = timeout.aborted
      ? `no answer within ${timeoutMs / 1000} s`
      : (error as Error).message || String((error as NodeJS.ErrnoException).code)
    return { kind: 'again', why }
  }
  if (status === 200) return captured(text, settings, line)
  return refused(settings, line, status, bodyErrorText(text), retryAfter)
}

function captured(text: string, { steps, minCovered }: AskSettings, line: number): Outcome {
  let body: unknown
  try {
    body = JSON.parse(text)
  } catch (cause) {
    throw new EldrError('ELDR_ENDPOINT_FAILED', {
      found: `an answer to line ${line} that is no JSON`,
      expected: 'a completion',
      cause,
    })
  }
  const found = readAnswer(body, steps, `line ${line}`)
  if (found.covered >= minCovered * found.tokens) return { kind: 'captured', captured: found }
  return {
    kind: 'skipped',
    skip: 'not_covered',
    why: `experts of ${found.covered} of ${found.tokens} prompt tokens known`,
  }
}

function refused(
  settings: AskSettings,
  line: number,
  status: number,
  said: string,
  retryAfter: unknown,
): Outcome {
  const { skipRefused, endpoint, steps } = settings
  if (status === 400 && areTooMany(steps, said))
    throw new EldrError('ELDR_ENDPOINT_FAILED', {
      found: `status ${status} for line ${line} from ${endpoint.origin}, whatever the prompt (${said})`,
      expected: `a model with room for ${steps + 1} tokens after a prompt`,
      todo: 'Ask for fewer --steps.',
    })
  if (status === 413 || (status === 400 && TOO_LONG.test(said)))
    return { kind: 'skipped', skip: 'too_long', why: said }
  if (WHILE_BUSY.has(status) || (status >= 500 && status !== 501)) {
    const seconds = Number(retryAfter)
    return {
      kind: 'again',
      why: `status ${status}: ${said}`,
      status,
      ...(seconds > 0 && { afterMs: 1000 * Math.min(60, seconds) }),
    }
  }
  const isOfThePrompt = status === 400 || status === 422
  if (isOfThePrompt && skipRefused) return { kind: 'skipped', skip: 'refused', why: said }
  throw new EldrError('ELDR_ENDPOINT_FAILED', {
    found: `status ${status} for line ${line} from ${endpoint.origin} (${said})`,
    expected: 'an answer',
    ...(isOfThePrompt && {
      todo: 'Change the line or the options; --skip-refused leaves out prompts that the server refuses.',
    }),
    ...((status === 401 || status === 403) && { todo: 'Give the key with --api-key or OPENAI_API_KEY.' }),
  })
}

/** Whether no prompt at all would fit before so many steps and their last token. */
function areTooMany(steps: number, said: string): boolean {
  const length = MODEL_LENGTH.exec(said)?.[1]
  return length === undefined ? TOO_MANY_STEPS.test(said) : steps + 1 >= Number(length)
}

function bodyOf(
  { model, api, steps, ignoreEos, temperature, seed }: AskSettings,
  request: number,
  prompt: Prompt,
): string {
  const isChat = apiOf(prompt, api) === 'chat'
  const asked =
    typeof prompt === 'object' && 'messages' in prompt
      ? prompt
      : isChat
        ? { messages: [{ role: 'user', content: prompt }] }
        : { prompt }
  return JSON.stringify({
    model,
    ...asked,
    max_tokens: steps + 1,
    ...(ignoreEos && { ignore_eos: true }),
    temperature,
    ...(temperature > 0 && { seed: seedOf(seed, request) }),
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
    if (bytes > MOST_ANSWER_BYTES)
      throw new EldrError('ELDR_ENDPOINT_FAILED', {
        found: `an answer of more than ${MOST_ANSWER_BYTES} bytes to line ${line}`,
        expected: 'less',
        todo: 'Ask for fewer --steps.',
      })
  }
  return Buffer.concat(chunks).toString('utf8')
}
