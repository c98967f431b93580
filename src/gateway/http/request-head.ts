/** What Node's parser lets through although it may mean one thing to us and another to a proxy before us. */
import type { IncomingMessage } from 'node:http'

/** The reason for a 400, or undefined when the head is sound. */
export function wrongHead({ httpVersion, headers, rawHeaders }: IncomingMessage): string | undefined {
  if (httpVersion !== '1.1' && httpVersion !== '1.0') return 'HTTP/1.1 and HTTP/1.0 are spoken here.'
  let hosts = 0
  for (let at = 0; at < rawHeaders.length; at += 2)
    if (rawHeaders[at]!.length === 4 && rawHeaders[at]!.toLowerCase() === 'host') hosts++
  if (hosts > 1 || (hosts === 0 && httpVersion === '1.1')) return 'A request must have one Host header.'
  const coding = headers['transfer-encoding']
  if (coding !== undefined && (httpVersion === '1.0' || coding.toLowerCase() !== 'chunked'))
    return 'No transfer coding but chunked is taken.'
  const encoding = headers['content-encoding']
  if (encoding !== undefined && encoding.toLowerCase() !== 'identity')
    return 'Compressed bodies are not taken: send the body as it is.'
  return undefined
}
