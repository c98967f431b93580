/** Rejects requests that Node's parser accepts but that a proxy in front may read differently. */
import type { IncomingMessage } from 'node:http'

/** The reason for a 400, or undefined if the head is valid. */
export function wrongHead({ httpVersion, headers, rawHeaders }: IncomingMessage): string | undefined {
  if (httpVersion !== '1.1' && httpVersion !== '1.0') return 'Only HTTP/1.1 and HTTP/1.0 are supported.'
  let hosts = 0
  for (let at = 0; at < rawHeaders.length; at += 2)
    if (rawHeaders[at]!.length === 4 && rawHeaders[at]!.toLowerCase() === 'host') hosts++
  if (hosts > 1 || (hosts === 0 && httpVersion === '1.1'))
    return 'A request must have exactly one Host header.'
  const coding = headers['transfer-encoding']
  if (coding !== undefined && (httpVersion === '1.0' || coding.toLowerCase() !== 'chunked'))
    return 'Only the transfer coding “chunked” is supported.'
  const encoding = headers['content-encoding']
  if (encoding !== undefined && encoding.toLowerCase() !== 'identity')
    return 'Compressed request bodies are not supported.'
  return undefined
}
