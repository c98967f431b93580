import type { IncomingMessage } from 'node:http'
import { type ByteBudget, PIECE_BYTES } from '../../wire/byte-budget.ts'
import { Refusal } from './refusal.ts'
import type { StopSignal } from '../upstream/upstreams.ts'

const readers = new WeakMap<IncomingMessage, (reason: Error) => void>()
const broken = new WeakMap<IncomingMessage, Refusal>()

/**
 * The whole body. A request is refused as soon as it is known to be too large; `proceed` is called before anything is read. When it rejects
 * the rest of the body has not been read: whoever answers must see to it that it is not taken for the next request (`refuse.ts`).
 * `budget` is for all bodies that are being read: it has nothing of this one when the promise is settled.
 */
export function readBody(
  request: IncomingMessage,
  maxBytes: number,
  proceed: () => void,
  stop?: StopSignal,
  budget?: ByteBudget,
): Promise<Buffer> {
  const tooLarge = () =>
    new Refusal('ELDR_BODY_TOO_LARGE', { words: `The request body is larger than ${maxBytes} bytes.` })
  if (Number(request.headers['content-length'] ?? 0) > maxBytes) return Promise.reject(tooLarge())
  const fault = broken.get(request)
  if (fault !== undefined) return Promise.reject(fault)
  if (request.destroyed && !request.readableEnded) return Promise.reject(brokeOff())
  proceed()
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = []
    let unhook: (() => void) | undefined
    let bytes = 0
    const share = budget?.open()
    const onData = (chunk: Buffer) => {
      bytes += chunk.length
      if (bytes > maxBytes) give(tooLarge())
      else if (share?.take(chunk.length + PIECE_BYTES) === false) give(tooMany())
      else chunks.push(chunk)
    }
    const onEnd = () => {
      settle()
      resolve(chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks))
    }
    const onClose = () => {
      if (!request.complete) give(brokeOff())
    }
    const give = (reason: Error) => {
      settle()
      request.pause()
      reject(reason)
    }
    const settle = () => {
      readers.delete(request)
      share?.close()
      unhook?.()
      request.off('data', onData).off('end', onEnd).off('close', onClose)
    }
    readers.set(request, give)
    // An error is followed by the end of the connection; without a listener it would end the process.
    request.on('data', onData).on('end', onEnd).on('close', onClose).on('error', give)
    unhook = stop?.onStop(give)
  })
}

/** What comes of this body is not HTTP, or too late: whoever reads it, now or later, gets this reason. */
export function failBody(request: IncomingMessage, reason: Refusal): void {
  broken.set(request, reason)
  readers.get(request)?.(reason)
}

function tooMany(): Refusal {
  return new Refusal('ELDR_OVERLOADED', {
    words: 'Too many bodies are being read at once; try again later.',
    retryAfterSeconds: 1,
  })
}

function brokeOff(): Refusal {
  return new Refusal('ELDR_BAD_REQUEST', { words: 'The request broke off.' })
}
