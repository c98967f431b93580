/**
 * The chat template of a model. Templates are programs (Jinja); the worker runs none, but knows this one by its text and refuses any
 * other, so that a prompt is never built in a way that the model's files do not say.
 */
import type { ChatMessage } from '../types.ts'
import { badModel } from './config.ts'

const KNOWN =
  "{% for m in messages %}{% if m['role'] == 'assistant' %}<|assistant|>{{ m['content'] }}<|end|>{% else %}<|user|>{{ m['content'] }}<|end|>{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"

export type ChatTemplate = (messages: readonly ChatMessage[]) => string

/** `template`: undefined where the model has none. */
export function chatTemplate(file: string, template: string | undefined): ChatTemplate | undefined {
  if (template === undefined) return undefined
  // Jinja itself drops one newline at the end, which editors like to add.
  if (template.replace(/\n$/, '') !== KNOWN)
    throw badModel(file, [
      'a chat_template that this worker does not know: it runs no Jinja, only templates that it knows by their text',
    ])
  return messages => `${messages.map(render).join('')}<|assistant|>`
}

function render({ role, content }: ChatMessage): string {
  return `${role === 'assistant' ? '<|assistant|>' : '<|user|>'}${content}<|end|>`
}
