/**
 * Splits a request for several choices or prompts into requests for one choice of one prompt each, because an
 * engine returns the hand-off of only one. Choice c of prompt p has index p·n + c, as in OpenAI's API.
 */
import { editObject } from '../../json/edit.ts'
import { scanObject } from '../../json/scan.ts'
import type { ClientRequest } from '../../http/client-request.ts'

export interface Part {
  readonly request: ClientRequest
  /** Index of the choice in the merged response. */
  readonly index: number
  /** Counts the prompt's tokens for all its choices. */
  readonly firstOfPrompt: boolean
}

export function partsOf(request: ClientRequest): number {
  return request.choices * Math.max(1, request.prompts.length)
}

export function split(request: ClientRequest): Part[] {
  const { choices, prompts } = request
  return Array.from({ length: partsOf(request) }, (_, index) => {
    const choice = index % choices
    const prompt = prompts.length > 1 ? prompts[Math.floor(index / choices)] : undefined
    return { request: partOf(request, prompt, choice), index, firstOfPrompt: choice === 0 }
  })
}

function partOf(
  request: ClientRequest,
  prompt: { readonly start: number; readonly end: number } | undefined,
  choice: number,
): ClientRequest {
  const { body, members, seed, prompts } = request
  const changed = editObject(body, members, {
    n: '1',
    ...(prompt && { prompt: body.subarray(prompt.start, prompt.end) }),
    // As vLLM does for the choices of one request: the same seed would give the same text.
    ...(seed !== undefined && { seed: String(seed + choice) }),
  })
  const scanned = scanObject(changed)!
  const text = scanned.find(({ name }) => name === 'prompt')
  return {
    ...request,
    body: changed,
    members: scanned,
    choices: 1,
    prompts: text === undefined ? [] : [{ start: text.valueStart, end: text.end }],
    promptTokens: Math.ceil(request.promptTokens / Math.max(1, prompts.length)),
  }
}
