/**
 * The chat template of a model. Templates are Jinja programs; the worker does not run Jinja. It recognizes
 * this template by its text and refuses any other, so that a prompt is never built differently from what the
 * model’s files say.
 */
import type { ChatMessage } from '../types.ts'
import { badModel } from './config.ts'

const KNOWN =
  "{% for m in messages %}{% if m['role'] == 'assistant' %}<|assistant|>{{ m['content'] }}<|end|>{% else %}<|user|>{{ m['content'] }}<|end|>{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"

export type ChatTemplate = (messages: readonly ChatMessage[]) => string

/** `template`: undefined if the model has none. */
export function chatTemplate(file: string, template: string | undefined): ChatTemplate | undefined {
  if (template === undefined) return undefined
  // Jinja drops one trailing newline, which editors like to add.
  if (template.replace(/\n$/, '') !== KNOWN)
    throw badModel(file, [
      'unsupported chat_template: this worker does not run Jinja and recognizes known templates by their text',
    ])
  return messages => `${messages.map(render).join('')}<|assistant|>`
}

function render({ role, content }: ChatMessage): string {
  return `${role === 'assistant' ? '<|assistant|>' : '<|user|>'}${content}<|end|>`
}
