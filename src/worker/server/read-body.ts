import type { IncomingMessage } from 'node:http'
import { type BudgetShare, type ByteBudget, PIECE_BYTES } from '../../wire/byte-budget.ts'
import { ApiError, badShape } from './api-error.ts'

export interface BodyLimits {
  /** Limit per body. */
  readonly maxBytes: number
  /** Limit on all bodies being read. */
  readonly budget: ByteBudget
}

/** Reads and parses a JSON body. */
export async function readJson(request: IncomingMessage, { maxBytes, budget }: BodyLimits): Promise<unknown> {
  const text = new TextDecoder('utf-8', { fatal: true })
  const share = budget.open()
  try {
    const body = await readBytes(request, maxBytes, share)
    try {
      return JSON.parse(text.decode(body)) as unknown
    } catch {
      throw badShape('json_invalid', [], 'JSON decode error')
    }
  } finally {
    share.close()
  }
}

function readBytes(request: IncomingMessage, maxBytes: number, share: BudgetShare): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = []
    let bytes = 0
    let isRefused = false
    // The rest is read and discarded, so that the client can read the response.
    const refuse = (error: ApiError) => {
      isRefused = true
      chunks.length = 0
      reject(error)
    }
    const tooLarge = () =>
      new ApiError(413, `The body is larger than ${maxBytes} bytes.`, { type: 'Request Entity Too Large' })
    if (Number(request.headers['content-length'] ?? 0) > maxBytes) {
      request.resume()
      return reject(tooLarge())
    }
    request.on('data', (chunk: Buffer) => {
      if (isRefused) return
      bytes += chunk.length
      if (bytes > maxBytes) refuse(tooLarge())
      else if (share.take(chunk.length + PIECE_BYTES)) chunks.push(chunk)
      else
        refuse(
          new ApiError(503, 'Too many request bodies are being read at once; try again later.', {
            retryAfterSeconds: 1,
          }),
        )
    })
    request.on('end', () => resolve(Buffer.concat(chunks)))
    request.on('close', () => reject(new ApiError(400, 'The request was incomplete.')))
    request.on('error', () => reject(new ApiError(400, 'The request was incomplete.')))
    return undefined
  })
}
