/**
 * The result of a thread or child process. Errors lose their class on the way, so they travel as plain data.
 */
import { EldrError, type ErrorCode, type ErrorDetail } from '../../errors.ts'

export type ThreadResult = { readonly result: unknown } | { readonly failure: Failure }

interface Failure {
  readonly message: string
  readonly code?: ErrorCode
  readonly detail?: ErrorDetail
}

export function failureResult(error: unknown): ThreadResult {
  if (!(error instanceof EldrError))
    return { failure: { message: error instanceof Error ? (error.stack ?? error.message) : String(error) } }
  const { cause: _, ...detail } = error.detail // a cause may be a value that cannot be cloned
  return { failure: { message: error.message, code: error.code, detail } }
}

/** Returns the result, or throws the error again. */
export function unwrapResult(received: ThreadResult): unknown {
  if ('result' in received) return received.result
  const { message, code, detail } = received.failure
  throw code === undefined ? new Error(message) : new EldrError(code, detail)
}

/** Buffers to transfer instead of copying. Shared memory stays shared. */
export function transferableBuffers(value: unknown): ArrayBuffer[] {
  const found = new Set<ArrayBuffer>()
  const visit = (part: unknown): void => {
    if (ArrayBuffer.isView(part)) {
      if (part.buffer instanceof ArrayBuffer) found.add(part.buffer)
    } else if (typeof part === 'object' && part !== null) Object.values(part).forEach(visit)
  }
  visit(value)
  return [...found]
}
