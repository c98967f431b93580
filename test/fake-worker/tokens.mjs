// A trivial tokenizer: four characters are one token. Lengths follow prompts, and equal texts give equal ids.

const CHARACTERS = 4
const VOCABULARY = 32_000

/** Number of tokens of a request's prompt. @param {any} body */
export function promptTokens(body) {
  const prompt = promptOf(body)
  return Array.isArray(prompt) ? prompt.length : Math.max(1, Math.ceil(prompt.length / CHARACTERS))
}

/** Ids of a request's prompt. @param {any} body @returns {number[]} */
export function promptTokenIds(body) {
  const prompt = promptOf(body)
  if (Array.isArray(prompt)) return prompt
  return Array.from({ length: promptTokens(body) }, (_, i) => {
    let id = 0
    for (let c = i * CHARACTERS; c < Math.min(prompt.length, (i + 1) * CHARACTERS); c++)
      id = (id * 31 + prompt.charCodeAt(c)) % VOCABULARY
    return id
  })
}

/**
 * Text, or ids if the client sent ids. The first of a list of prompts.
 * @param {any} body
 * @returns {string | number[]}
 */
function promptOf(body) {
  if (Array.isArray(body?.messages)) return body.messages.map(messageText).join('')
  const prompt = body?.prompt
  if (typeof prompt === 'string') return prompt
  if (!Array.isArray(prompt)) return ''
  return typeof prompt[0] === 'number' ? prompt : promptOf({ prompt: prompt[0] })
}

/** @param {any} message @returns {string} */
function messageText(message) {
  const content = message?.content
  if (typeof content === 'string') return content
  return Array.isArray(content)
    ? content.map(part => (typeof part?.text === 'string' ? part.text : '')).join('')
    : ''
}
