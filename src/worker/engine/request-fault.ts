/** An error that concerns only one request. */
import type { EngineSettings, Generation } from '../types.ts'

export class RequestFault extends Error {
  /** HTTP status. */
  readonly status: number

  constructor(status: number, message: string) {
    super(message)
    this.status = status
  }
}

/** Why a request could never run, even alone with all blocks. The last generated token needs no slot. */
export function faultOf(
  { promptIds, maxTokens, remote }: Generation,
  { blocks, blockTokens }: EngineSettings,
): RequestFault | undefined {
  const tokens = promptIds.length
  if (tokens === 0) return new RequestFault(400, 'The prompt is empty.')
  if (remote !== undefined && !(remote.tokens >= 1 && remote.tokens <= tokens)) {
    return new RequestFault(400, `KV of ${remote.tokens} tokens was handed off for a prompt of ${tokens}.`)
  }
  if (Math.ceil((tokens + maxTokens - 1) / blockTokens) <= blocks) return undefined
  const room = blocks * blockTokens
  return new RequestFault(
    400,
    `The prompt has ${tokens} tokens and ${maxTokens} may be generated, but the KV cache holds ${room} tokens.`,
  )
}
