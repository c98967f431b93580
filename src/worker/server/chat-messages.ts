/** The messages of a chat, with their text parts joined. */
import type { ChatMessage } from '../types.ts'
import { badRequest, badShape } from './api-error.ts'
import { Fields, isRecord } from './fields.ts'

export function readMessages(fields: Fields): ChatMessage[] {
  if (fields.value('messages') === undefined) throw fields.missing('messages')
  const list = fields.list('messages')!
  if (list.length === 0) throw badRequest('messages must have at least one message.', 'messages')
  return list.map((message, i) => {
    const path = ['messages', i]
    if (!isRecord(message)) throw badShape('dict_type', path, 'Input should be a valid dictionary')
    const inside = new Fields(message, path)
    const role = inside.text('role')
    if (role === undefined) throw inside.missing('role')
    return { role, content: contentOf(inside.value('content'), [...path, 'content']) }
  })
}

function contentOf(content: unknown, path: readonly (string | number)[]): string {
  if (content === undefined) return ''
  if (typeof content === 'string') return content
  if (!Array.isArray(content)) throw badShape('string_type', path, 'Input should be a valid string')
  return content.map((part: unknown, i) => textOf(part, [...path, i])).join('')
}

function textOf(part: unknown, path: readonly (string | number)[]): string {
  if (typeof part === 'string') return part
  if (!isRecord(part)) throw badShape('dict_type', path, 'Input should be a valid dictionary')
  const inside = new Fields(part, path)
  const type = inside.text('type')
  if (type !== 'text')
    throw badRequest(
      `Parts of type ${String(type)} are not supported: this model accepts text only.`,
      'messages',
    )
  const text = inside.text('text')
  if (text === undefined) throw inside.missing('text')
  return text
}
