/** What is looked at of an answer that is not streamed. */
import { editObject } from '../json/edit.ts'
import { type Member, scanObject } from '../json/scan.ts'
import { last } from '../http/client-request.ts'
import type { ReplyHeaders } from '../upstream/upstreams.ts'

/** How many tokens it says it has, and its bytes for the client; undefined when it is no JSON object. */
export function readWhole(body: Buffer): { readonly body: Buffer; readonly tokens: number } | undefined {
  const members = scanObject(body)
  if (members === undefined) return undefined
  const transfer = last(members, 'kv_transfer_params')
  // Where the blocks of a prompt lie, if an engine says so at the end as well, is no business of clients.
  const named = transfer !== undefined && body[transfer.valueStart] === 0x7b
  return {
    body: named ? editObject(body, members, { kv_transfer_params: undefined }) : body,
    tokens: completionTokens(body, members),
  }
}

function completionTokens(body: Buffer, members: readonly Member[]): number {
  const usage = last(members, 'usage')
  const tokens = usage && last(scanObject(body, usage.valueStart, usage.end) ?? [], 'completion_tokens')
  const count = tokens === undefined ? 0 : Number(body.toString('latin1', tokens.valueStart, tokens.end))
  return Number.isSafeInteger(count) && count > 0 ? count : 0
}

export function isPacked(headers: ReplyHeaders): boolean {
  return (headers['content-encoding'] ?? 'identity') !== 'identity'
}
