/** Merges the responses of the parts of a request: choices with their own indices, one id, total usage. */
import type { Part } from './split.ts'

type Json = Record<string, unknown>

export interface Usage {
  readonly prompt_tokens: number
  readonly completion_tokens: number
  readonly total_tokens: number
  readonly prompt_tokens_details?: { readonly cached_tokens: number }
}

/** `answers`: complete responses in the order of the parts. `hidden`: fields that clients must not see. */
export function mergeResponses(
  id: string,
  parts: readonly Part[],
  answers: readonly Json[],
  hidden: readonly string[],
): Json {
  const choices = answers.flatMap((answer, at) =>
    choicesOf(answer).map(choice => ({ ...choice, index: parts[at]!.index })),
  )
  const first = Object.fromEntries(Object.entries(answers[0]!).filter(([name]) => !hidden.includes(name)))
  return { ...first, id, choices, usage: mergeUsage(parts, answers.map(usageOf)) }
}

/** Prompt tokens once per prompt, completion tokens of all choices. */
export function mergeUsage(parts: readonly Part[], usages: readonly (Partial<Usage> | undefined)[]): Usage {
  let [prompt, completion, cached] = [0, 0, 0]
  let details = false
  for (const [at, { firstOfPrompt }] of parts.entries()) {
    const usage = usages[at]
    completion += usage?.completion_tokens ?? 0
    if (!firstOfPrompt) continue
    prompt += usage?.prompt_tokens ?? 0
    if (usage?.prompt_tokens_details) details = true
    cached += usage?.prompt_tokens_details?.cached_tokens ?? 0
  }
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    ...(details && { prompt_tokens_details: { cached_tokens: cached } }),
  }
}

/**
 * Rewrites id and index of a part's event. Undefined for an event without choices: usage is sent once, at the
 * end.
 */
export function rewriteEvent(id: string, index: number, event: Json): Json | undefined {
  const choices = choicesOf(event)
  if (choices.length === 0) return undefined
  const { usage: _, ...rest } = event
  return { ...rest, id, choices: choices.map(choice => ({ ...choice, index })) }
}

export function usageOf(answer: Json): Partial<Usage> | undefined {
  const { usage } = answer
  return usage !== null && typeof usage === 'object' ? (usage as Partial<Usage>) : undefined
}

function choicesOf(answer: Json): Json[] {
  return Array.isArray(answer['choices']) ? (answer['choices'] as Json[]) : []
}
