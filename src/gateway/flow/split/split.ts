/**
 * A request for several choices, or with several prompts, as requests for one choice of one prompt each: an engine gives the hand-off of
 * one of them only. Choice c of prompt p is choice p·n + c of the whole, as OpenAI's API has it.
 */
import { editObject } from '../../json/edit.ts'
import { scanObject } from '../../json/scan.ts'
import type { ClientRequest } from '../../http/client-request.ts'

export interface Part {
  readonly request: ClientRequest
  /** Of the choice in the whole answer. */
  readonly index: number
  /** The first choice of a prompt stands for its prompt tokens. */
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
    // As vLLM does it for the choices of one request: the same seed would give the same text.
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
