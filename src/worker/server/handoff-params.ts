/** `kv_transfer_params` of both legs, as in vLLM’s NIXL connector in pull mode, plus ELDR’s own key. */
import { createHash } from 'node:crypto'
import { type CapturedCounts, encodeCounts, type WireCounts } from '../../wire/counts.ts'
import { encodeDecodeExperts, type WireDecode } from '../../wire/decode-experts.ts'
import type { HandoffTarget } from '../kv/remote-handoff.ts'
import type { CountsSnapshot, KeptBlocks, RecordedDecode } from '../types.ts'
import { badRequest } from './api-error.ts'
import { type PromptLimits, tooLong } from './api-request.ts'
import { type Fields, idsOf, isRecord } from './fields.ts'

/** Identity of the prefill worker, and the address of its blocks. */
export interface HandoffOrigin {
  readonly engineId: string
  readonly host: string
  readonly port: number
  readonly leaseMs: number
}

/** What a request asks of the KV transfer. */
export type KvAction =
  | { readonly kind: 'none' }
  | { readonly kind: 'hand_off' }
  | { readonly kind: 'record' }
  | {
      readonly kind: 'fetch'
      readonly target: HandoffTarget
      readonly leaseMs: number | undefined
      readonly cachedTokens: number | undefined
    }

export function readKvAction(kv: Fields | undefined): KvAction {
  if (kv === undefined) return { kind: 'none' }
  const [prefill, decode] = [kv.bool('do_remote_prefill'), kv.bool('do_remote_decode')]
  if (prefill && decode)
    throw badRequest('do_remote_prefill and do_remote_decode cannot both be true.', 'kv_transfer_params')
  const record = isRecord(kv.value('eldr')) && kv.object('eldr')!.value('record')
  if (record !== false && record !== undefined && record !== 'decode')
    throw badRequest('eldr.record must be "decode".', 'kv_transfer_params')
  if (record === 'decode') {
    if (prefill || decode)
      throw badRequest('A recorded request cannot be handed off or fetched.', 'kv_transfer_params')
    return { kind: 'record' }
  }
  if (decode) return { kind: 'hand_off' }
  return prefill ? readFetch(kv) : { kind: 'none' }
}

function readFetch(kv: Fields): KvAction {
  const [engineId, requestId, host, port, tokens] = [
    kv.text('remote_engine_id'),
    kv.text('remote_request_id'),
    kv.text('remote_host'),
    kv.whole('remote_port'),
    kv.whole('remote_num_tokens'),
  ]
  const missing = Object.entries({
    remote_engine_id: engineId,
    remote_request_id: requestId,
    remote_host: host,
    remote_port: port,
    remote_num_tokens: tokens,
    remote_block_ids: kv.list('remote_block_ids'),
  }).find(([, value]) => value === undefined)
  if (missing !== undefined)
    throw badRequest(
      `kv_transfer_params.${missing[0]} is missing; do_remote_prefill requires it.`,
      'kv_transfer_params',
    )
  if (host === '' || host!.length > 253)
    throw badRequest('remote_host is not a valid host.', 'kv_transfer_params')
  if (port! < 1 || port! > 65_535)
    throw badRequest(`remote_port must be in [1, 65535], got ${port}.`, 'kv_transfer_params')
  if (tokens! < 1)
    throw badRequest(`remote_num_tokens must be at least 1, got ${tokens}.`, 'kv_transfer_params')
  const target = { host: host!, port: port!, engineId: engineId!, requestId: requestId!, tokens: tokens! }
  const leaseMs = kv.number('remote_lease_ms')
  return {
    kind: 'fetch',
    target,
    leaseMs: leaseMs !== undefined && leaseMs > 0 ? leaseMs : undefined,
    cachedTokens: kv.whole('remote_prefill_cached_tokens'),
  }
}

/** Token ids that the gateway got from the prefill leg, so that the chat template is not applied again. */
export function givenPromptIds(
  kv: Fields | undefined,
  { maxModelLen }: PromptLimits,
): Int32Array | undefined {
  const ids = kv?.list('prompt_token_ids')
  if (ids !== undefined && ids.length > maxModelLen) throw tooLong(maxModelLen, `${ids.length}`)
  return ids === undefined || ids.length === 0
    ? undefined
    : idsOf(ids, ['kv_transfer_params', 'prompt_token_ids'])
}

export function handoffParams(
  origin: HandoffOrigin,
  remoteId: string,
  lease: KeptBlocks,
  cachedTokens: number,
  counts: CountsSnapshot | undefined,
) {
  return {
    do_remote_prefill: true,
    do_remote_decode: false,
    // One list per KV cache group; there is only one group.
    remote_block_ids: [lease.blockIds],
    remote_engine_id: origin.engineId,
    remote_request_id: remoteId,
    remote_host: origin.host,
    remote_port: origin.port,
    tp_size: 1,
    dcp_size: 1,
    pp_size: 1,
    transfer_mode: 'pull',
    remote_num_tokens: lease.tokens,
    remote_prefill_cached_tokens: cachedTokens,
    remote_blocks_expiry_time: null,
    // ELDR’s own: sets the heartbeat interval.
    remote_lease_ms: origin.leaseMs,
    eldr: counts && wireCounts(counts),
  }
}

export function recordedParams(
  counts: CountsSnapshot | undefined,
  decode: RecordedDecode | undefined,
): { eldr: WireCounts & { decode: WireDecode } } | null {
  if (counts === undefined || decode === undefined) return null
  return { eldr: { ...wireCounts(counts), decode: encodeDecodeExperts({ ...counts, ...decode }) } }
}

function wireCounts({ recent, halfLife, ...counts }: CountsSnapshot): WireCounts {
  const captured: CapturedCounts = counts
  return encodeCounts(
    recent === undefined || halfLife === undefined
      ? captured
      : { ...captured, recent: { values: recent, halfLife } },
  )
}

/** Hash of the transferred tokens: both workers compute it and compare. */
export function promptHash(ids: Int32Array, tokens: number): string {
  const part = ids.subarray(0, tokens)
  return createHash('sha256')
    .update(Buffer.from(part.buffer, part.byteOffset, part.byteLength))
    .digest('hex')
    .slice(0, 32)
}
