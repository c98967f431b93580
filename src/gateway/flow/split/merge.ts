/** The answers of the parts of a request as one answer: choices with their own indices, one id, usage of the whole. */
import type { Part } from './split.ts'

type Json = Record<string, unknown>

export interface Usage {
  readonly prompt_tokens: number
  readonly completion_tokens: number
  readonly total_tokens: number
  readonly prompt_tokens_details?: { readonly cached_tokens: number }
}

/** Answers in the order of the parts, each whole. */
export function mergeAnswers(id: string, parts: readonly Part[], answers: readonly Json[]): Json {
  const choices = answers.flatMap((answer, at) =>
    choicesOf(answer).map(choice => ({ ...choice, index: parts[at]!.index })),
  )
  const { kv_transfer_params: _, ...first } = answers[0]!
  return { ...first, id, choices, usage: mergeUsage(parts, answers.map(usageOf)) }
}

/** Prompt tokens once for each prompt, completion tokens of all choices. */
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

/** An event of a part as one of the whole: its own id and index. Undefined for an event that has no choice: the usage is told at the end. */
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
