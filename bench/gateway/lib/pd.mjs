// Edits of a PD router to a request, for the bare proxies and the direct client. Fields are appended to the
// unparsed body: every JSON parser here takes the last of two fields with the same name.

const PREFILL_FIELDS = {
  stream: false,
  stream_options: null,
  max_tokens: 1,
  max_completion_tokens: 1,
  min_tokens: 0,
  kv_transfer_params: {
    do_remote_decode: true,
    do_remote_prefill: false,
    remote_engine_id: null,
    remote_block_ids: null,
    remote_host: null,
    remote_port: null,
  },
}
const PREFILL_TAIL = Buffer.from(`,${JSON.stringify(PREFILL_FIELDS).slice(1)}`)
const CLOSING_BRACE = 125

/** The prefill leg of a request. @param {Buffer} body */
export function prefillBytes(body) {
  return Buffer.concat([body.subarray(0, body.lastIndexOf(CLOSING_BRACE)), PREFILL_TAIL])
}

/**
 * The decode leg: the request and the hand-off, as it came.
 * @param {Buffer} body
 * @param {Buffer} answer of the prefill worker
 */
export function decodeBytes(body, answer) {
  const tail = Buffer.from(
    `,"kv_transfer_params":${JSON.stringify(JSON.parse(answer.toString()).kv_transfer_params)}}`,
  )
  return Buffer.concat([body.subarray(0, body.lastIndexOf(CLOSING_BRACE)), tail])
}

/** The same with parsed bodies. @param {any} body */
export function prefillObject(body) {
  const { stream_options: _, min_tokens: __, ...rest } = body
  return { ...rest, stream: false, max_tokens: 1, kv_transfer_params: PREFILL_FIELDS.kv_transfer_params }
}

/** A function that gives each item in turn. @template T @param {readonly T[]} items @returns {() => T} */
export function inTurn(items) {
  let next = 0
  return () => items[next++ % items.length]
}
