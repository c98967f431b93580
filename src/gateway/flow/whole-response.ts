/** Reads a response that is not streamed. */
import type { EngineAdapter } from '../engines/engine.ts'
import { last } from '../http/client-request.ts'
import { type Member, scanObject } from '../json/scan.ts'
import type { ReplyHeaders } from '../upstream/upstreams.ts'

/** Its number of tokens, and its bytes for the client; undefined if it is not a JSON object. */
export function readWhole(
  body: Buffer,
  engine: Pick<EngineAdapter, 'cleanResponse'>,
): { readonly body: Buffer; readonly tokens: number } | undefined {
  const members = scanObject(body)
  if (members === undefined) return undefined
  return { body: engine.cleanResponse({ body, members }), tokens: completionTokens(body, members) }
}

function completionTokens(body: Buffer, members: readonly Member[]): number {
  const usage = last(members, 'usage')
  const tokens = usage && last(scanObject(body, usage.valueStart, usage.end) ?? [], 'completion_tokens')
  const count = tokens === undefined ? 0 : Number(body.toString('latin1', tokens.valueStart, tokens.end))
  return Number.isSafeInteger(count) && count > 0 ? count : 0
}

export function isCompressed(headers: ReplyHeaders): boolean {
  return (headers['content-encoding'] ?? 'identity') !== 'identity'
}
