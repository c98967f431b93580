import type { IncomingMessage } from 'node:http'
import { ApiError, badShape } from './api-error.ts'

/** The JSON of a body of at most so many bytes. */
export async function readJson(request: IncomingMessage, maxBytes: number): Promise<unknown> {
  const text = new TextDecoder('utf-8', { fatal: true })
  const body = await readBytes(request, maxBytes)
  try {
    return JSON.parse(text.decode(body)) as unknown
  } catch {
    throw badShape('json_invalid', [], 'JSON decode error')
  }
}

function readBytes(request: IncomingMessage, maxBytes: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = []
    let bytes = 0
    const tooLarge = () => new ApiError(413, `The body is larger than ${maxBytes} bytes.`, { type: 'Request Entity Too Large' })
    if (Number(request.headers['content-length'] ?? 0) > maxBytes) {
      request.resume()
      return reject(tooLarge())
    }
    request.on('data', (chunk: Buffer) => {
      bytes += chunk.length
      if (bytes <= maxBytes) return void chunks.push(chunk)
      // The rest is read and dropped, so that the answer can be.
      chunks.length = 0
      return reject(tooLarge())
    })
    request.on('end', () => resolve(Buffer.concat(chunks)))
    request.on('close', () => reject(new ApiError(400, 'The request broke off.')))
    request.on('error', () => reject(new ApiError(400, 'The request broke off.')))
    return undefined
  })
}
