import type { ClientRequest } from '../../http/client-request.ts'
import type { Progress } from './progress.ts'

/** What follows the event with the finish reason: usage, if the client wants it, and [DONE]. */
export function endOfStream({ api, includeUsage }: ClientRequest, progress: Progress): Buffer {
  const { head, promptTokens, ids, usageSent } = progress
  const usage = {
    prompt_tokens: promptTokens,
    total_tokens: promptTokens + ids.length,
    completion_tokens: ids.length,
  }
  const object = api === 'chat' ? 'chat.completion.chunk' : 'text_completion'
  const { id, created, model } = head!
  const event = JSON.stringify({ id, object, created, model, choices: [], usage })
  return Buffer.from(`${includeUsage && !usageSent ? `data: ${event}\n\n` : ''}data: [DONE]\n\n`)
}
