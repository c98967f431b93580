/** What is looked at of an answer that is not streamed. */
import { scanObject } from './json/scan.ts'
import { last } from './request.ts'
import type { ReplyHeaders } from './upstream/upstreams.ts'

/** As the usage of an answer has it; 0 when it does not say. */
export function completionTokens(body: Buffer): number {
  const usage = last(scanObject(body) ?? [], 'usage')
  const tokens = usage && last(scanObject(body, usage.valueStart, usage.end) ?? [], 'completion_tokens')
  const count = tokens === undefined ? 0 : Number(body.toString('latin1', tokens.valueStart, tokens.end))
  return Number.isSafeInteger(count) && count > 0 ? count : 0
}

export function isPacked(headers: ReplyHeaders): boolean {
  return (headers['content-encoding'] ?? 'identity') !== 'identity'
}
