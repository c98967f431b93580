import { describe, expect, it } from 'vitest'
import { conversations } from './conversation-source.ts'
import type { Message } from './request-source.ts'
import { synthetic } from './synthetic-sources.ts'

const OPENING = synthetic({
  form: 'text',
  promptTokens: 8,
  outputTokens: 6,
  prefixGroups: 0,
  prefixTokens: 0,
  seed: 1,
})
const LOAD = { turns: 3, thinkSeconds: 2, messageTokens: 4, seed: 1 }

describe('a source of conversations', () => {
  let now = 0
  const source = conversations(OPENING, LOAD, () => now)
  const messagesOf = (index: number) => [
    ...(source.request(index).prompt as { messages: readonly Message[] }).messages,
  ]

  it('repeats what was said, response included, and adds a message', () => {
    const first = messagesOf(0)
    expect(first).toEqual([{ role: 'user', content: OPENING.request(0).prompt }])
    // Nothing to continue while it runs: another conversation.
    expect(messagesOf(1)).toEqual([{ role: 'user', content: OPENING.request(1).prompt }])
    source.ended!(0, 'Yes.')
    now = 60_000
    const second = messagesOf(2)
    expect(second.slice(0, 2)).toEqual([...first, { role: 'assistant', content: 'Yes.' }])
    expect(second).toHaveLength(3)
    expect((second[2]!.content as string).split(' ')).toHaveLength(4)
  })

  it('ends a conversation after its last turn, and one whose response failed', () => {
    source.ended!(2, 'No.')
    now = 120_000
    expect(messagesOf(3)).toHaveLength(5)
    source.ended!(3, 'Perhaps.')
    source.ended!(1, undefined)
    now = 180_000
    expect(messagesOf(4)).toEqual([{ role: 'user', content: OPENING.request(2).prompt }])
  })

  it('waits for the pause', () => {
    source.ended!(4, 'Go on.')
    expect(messagesOf(5)).toHaveLength(1)
    now += 60_000
    expect(messagesOf(6)).toHaveLength(3)
  })
})
