// Requests of the load client: chats of plain text with line breaks and quotes, different for each stream
// from the first word on.

const WORDS =
  'the router sends every request to the worker whose experts are warm already and "asks" for no more than it needs'.split(
    ' ',
  )

/** @param {{promptBytes: number, tokens: number, stream: number}} what @returns {Buffer} */
export function chatBody({ promptBytes, tokens, stream }) {
  let prompt = `Stream ${stream}:`
  for (let n = 0; prompt.length < promptBytes; n++)
    prompt += (n % 12 === 11 ? '\n' : ' ') + WORDS[(n * 7 + stream) % WORDS.length]
  const messages = [
    { role: 'system', content: 'You are a helpful assistant.' },
    { role: 'user', content: prompt.slice(0, promptBytes) },
  ]
  return Buffer.from(
    JSON.stringify({ model: 'fake', messages, max_tokens: tokens, temperature: 0, stream: true }),
  )
}

/** A whole request. @param {Buffer} body @param {string} host */
export function requestBytes(body, host) {
  const headers = `host: ${host}\r\ncontent-type: application/json\r\naccept: text/event-stream\r\ncontent-length: ${body.length}`
  const head = `POST /v1/chat/completions HTTP/1.1\r\n${headers}\r\n\r\n`
  return Buffer.concat([Buffer.from(head, 'latin1'), body])
}
