/**
 * Turns another source of prompts into conversations: each of its prompts opens one, and every further turn
 * repeats what was said, with the server's own responses, and adds a message. A request continues the
 * conversation that has waited longest after its pause, or opens a new one.
 */
import { createRandom } from '../math/random.ts'
import type { Message, PromptRequest, RequestSource } from './request-source.ts'
import { piece } from './synthetic-text.ts'

export interface ConversationLoad {
  readonly turns: number
  /** Mean pause after a response; pauses are exponential. */
  readonly thinkSeconds: number
  /** Of each message after the first. */
  readonly messageTokens: number
  readonly seed: number
}

interface Conversation {
  readonly number: number
  readonly first: PromptRequest
  readonly messages: Message[]
  turns: number
  readyMs: number
}

/** Labels of independent random streams. */
const [MESSAGE, PAUSE] = [6, 7]

export function conversations(
  opening: RequestSource,
  { turns, thinkSeconds, messageTokens, seed }: ConversationLoad,
  nowMs: () => number = () => performance.now(),
): RequestSource {
  const running = new Map<number, Conversation>()
  const waiting: Conversation[] = []
  const pauses = createRandom(seed).fork(PAUSE)
  let opened = 0

  function next(): Conversation {
    const now = nowMs()
    const at = waiting.findIndex(({ readyMs }) => readyMs <= now)
    if (at >= 0) return waiting.splice(at, 1)[0]!
    const number = opened++
    const first = opening.request(number)
    return { number, first, messages: messagesOf(first), turns: 0, readyMs: 0 }
  }

  return {
    about: { ...opening.about, turns, thinkSeconds, messageTokens },
    request(index) {
      const conversation = next()
      conversation.turns++
      running.set(index, conversation)
      return { ...conversation.first, prompt: { messages: conversation.messages } }
    },
    ended(index, text) {
      const conversation = running.get(index)!
      running.delete(index)
      const { number, messages } = conversation
      if (text === undefined || conversation.turns === turns) return
      const content = piece('text', messageTokens, seed, MESSAGE, number, conversation.turns)
      messages.push({ role: 'assistant', content: text }, { role: 'user', content })
      conversation.readyMs = nowMs() - thinkSeconds * 1000 * Math.log(1 - pauses.uniform())
      waiting.push(conversation)
    },
  }
}

function messagesOf({ prompt }: PromptRequest): Message[] {
  return typeof prompt === 'object' && 'messages' in prompt
    ? [...prompt.messages]
    : [{ role: 'user', content: prompt }]
}
