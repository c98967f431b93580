import { base64Length, decodeBase64 } from './base64.ts'

/** Body of a worker's `GET /eldr/decoded`: experts of the decode steps of requests that have ended. */
export interface WireDecoded {
  readonly layers: number
  readonly experts: number
  /** Number of the last request; ask for those after it next time. A worker that restarts counts from 0. */
  readonly last: number
  readonly requests: readonly WireDecodedRequest[]
}

export interface WireDecodedRequest {
  /** X-Request-Id of the decode leg. */
  readonly id: string
  readonly steps: number
  /** Base64 of little-endian u16 [layer][expert]: steps that fired each expert. */
  readonly counts: string
}

export interface DecodedRequest {
  readonly id: string
  readonly steps: number
  /** [layers × experts] */
  readonly counts: Uint16Array
}

const MAX_STEPS = 65_535

export function encodeDecoded({ id, steps, counts }: DecodedRequest): WireDecodedRequest {
  const bytes = Buffer.alloc(2 * counts.length)
  for (let c = 0; c < counts.length; c++) bytes.writeUInt16LE(counts[c]!, 2 * c)
  return { id, steps, counts: bytes.toString('base64') }
}

/** Undefined for anything else: any value may arrive. Invalid requests are left out. */
export function readDecoded(
  value: unknown,
  { layers, experts }: { readonly layers: number; readonly experts: number },
): { readonly last: number; readonly requests: readonly DecodedRequest[] } | undefined {
  if (typeof value !== 'object' || value === null) return undefined
  const body = value as Partial<Record<keyof WireDecoded, unknown>>
  const { last, requests } = body
  if (body.layers !== layers || body.experts !== experts || !Array.isArray(requests)) return undefined
  if (typeof last !== 'number' || !Number.isSafeInteger(last) || last < 0) return undefined
  return { last, requests: requests.flatMap(request => readRequest(request, layers * experts) ?? []) }
}

function readRequest(value: unknown, cells: number): DecodedRequest | undefined {
  const { id, steps, counts: text } = (value ?? {}) as Partial<Record<keyof WireDecodedRequest, unknown>>
  if (typeof id !== 'string' || typeof text !== 'string' || text.length !== base64Length(2 * cells))
    return undefined
  if (typeof steps !== 'number' || !Number.isInteger(steps) || steps < 1 || steps > MAX_STEPS)
    return undefined
  const bytes = new Uint8Array(2 * cells)
  if (!decodeBase64(text, bytes)) return undefined
  const counts = Uint16Array.from({ length: cells }, (_, c) => bytes[2 * c]! | (bytes[2 * c + 1]! << 8))
  return counts.some(count => count > steps) ? undefined : { id, steps, counts }
}
