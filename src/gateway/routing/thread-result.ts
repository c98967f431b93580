/** What travels from a thread to the event loop: a result, or what is left of an error, which loses its class on the way. */
import { EldrError, type ErrorCode, type ErrorDetail } from '../../errors.ts'

export type Letter = { readonly result: unknown } | { readonly failure: Failure }

interface Failure {
  readonly message: string
  readonly code?: ErrorCode
  readonly detail?: ErrorDetail
}

export function letterOf(error: unknown): Letter {
  if (!(error instanceof EldrError))
    return { failure: { message: error instanceof Error ? (error.stack ?? error.message) : String(error) } }
  const { cause: _, ...detail } = error.detail // may be of any kind, and not every kind travels
  return { failure: { message: error.message, code: error.code, detail } }
}

export function openLetter(letter: Letter): unknown {
  if ('result' in letter) return letter.result
  const { message, code, detail } = letter.failure
  throw code === undefined ? new Error(message) : new EldrError(code, detail)
}

/** Memory that changes hands in place of being copied; what is shared stays shared. */
export function buffersIn(value: unknown): ArrayBuffer[] {
  const found = new Set<ArrayBuffer>()
  const look = (part: unknown): void => {
    if (ArrayBuffer.isView(part)) {
      if (part.buffer instanceof ArrayBuffer) found.add(part.buffer)
    } else if (typeof part === 'object' && part !== null) Object.values(part).forEach(look)
  }
  look(value)
  return [...found]
}
