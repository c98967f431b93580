import type { IncomingMessage } from 'node:http'
import { type ByteBudget, PIECE_BYTES } from '../../wire/byte-budget.ts'
import { Refusal } from './refusal.ts'
import type { StopSignal } from '../upstream/upstreams.ts'

const readers = new WeakMap<IncomingMessage, (reason: Error) => void>()
const broken = new WeakMap<IncomingMessage, Refusal>()

/**
 * Reads the whole body. Rejects as soon as it is known to be too large; `proceed` is called before anything
 * is read. After a rejection the rest of the body has not been read: the caller must keep it from being
 * parsed as the next request (`refuse.ts`). `budget` is shared by all bodies that are being read, and has
 * this one's bytes back when the promise settles.
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
  if (request.destroyed && !request.readableEnded) return Promise.reject(endedEarly())
  proceed()
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = []
    let unhook: (() => void) | undefined
    let bytes = 0
    const share = budget?.open()
    const onData = (chunk: Buffer) => {
      bytes += chunk.length
      if (bytes > maxBytes) fail(tooLarge())
      else if (share?.take(chunk.length + PIECE_BYTES) === false) fail(tooMany())
      else chunks.push(chunk)
    }
    const onEnd = () => {
      settle()
      resolve(chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks))
    }
    const onClose = () => {
      if (!request.complete) fail(endedEarly())
    }
    const fail = (reason: Error) => {
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
    readers.set(request, fail)
    // An error is followed by the end of the connection; without a listener it would crash the process.
    request.on('data', onData).on('end', onEnd).on('close', onClose).on('error', fail)
    unhook = stop?.onStop(fail)
  })
}

/** The body is invalid or too late: reading it, now or later, fails with this reason. */
export function failBody(request: IncomingMessage, reason: Refusal): void {
  broken.set(request, reason)
  readers.get(request)?.(reason)
}

function tooMany(): Refusal {
  return new Refusal('ELDR_OVERLOADED', {
    words: 'Too many request bodies are being read; try again later.',
    retryAfterSeconds: 1,
  })
}

function endedEarly(): Refusal {
  return new Refusal('ELDR_BAD_REQUEST', { words: 'The request ended before its body was complete.' })
}
