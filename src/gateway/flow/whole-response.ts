/** Reads a response that is not streamed. */
import type { EngineAdapter } from '../engines/engine.ts'
import { last } from '../http/client-request.ts'
import { editObject } from '../json/edit.ts'
import { type Member, scanObject } from '../json/scan.ts'
import type { ReplyHeaders } from '../upstream/upstreams.ts'

/** Of null, which most responses have there and may keep. */
const LOWER_N = 0x6e

/** Its number of tokens, and its bytes for the client; undefined if it is not a JSON object. */
export function readWhole(
  body: Buffer,
  { privateFields }: Pick<EngineAdapter, 'privateFields'>,
): { readonly body: Buffer; readonly tokens: number } | undefined {
  const members = scanObject(body)
  if (members === undefined) return undefined
  return { body: cleaned(body, members, privateFields.response), tokens: completionTokens(body, members) }
}

function cleaned(body: Buffer, members: readonly Member[], fields: readonly string[]): Buffer {
  for (const name of fields) {
    const member = last(members, name)
    if (member !== undefined && body[member.valueStart] !== LOWER_N)
      return editObject(body, members, Object.fromEntries(fields.map(field => [field, undefined])))
  }
  return body
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
