// Sizes of the messages between gateways: dispatch, completion, and for `union` the expected experts of a
// request. Measured on every request of the trace; a large model is scaled by its number of cells.
import { deflateRawSync, constants } from 'node:zlib'
import { createStudyLibrary } from '../../dist/sim/study-library.js'
import { logsOf } from '../../dist/policy/union-state.js'

const LARGE_CELLS = 58 * 256

/** Kind, worker, and the gateway's request number. */
function binaryEvent(kind, worker, request) {
  const bytes = Buffer.alloc(7)
  bytes.writeUInt8(kind, 0)
  bytes.writeUInt16LE(worker, 1)
  bytes.writeUInt32LE(request, 3)
  return bytes
}

const jsonEvent = (kind, worker, request) =>
  Buffer.from(
    `${JSON.stringify({ e: kind, w: `decode-${worker}`, r: `chatcmpl-${request.toString(16).padStart(32, '0')}` })}\n`,
  )
const bytesOf = array => Buffer.from(array.buffer, array.byteOffset, array.byteLength)
const deflated = bytes => deflateRawSync(bytes, { level: constants.Z_BEST_SPEED })
/**
 * −log(1 − p) is at most 3.92, so it fits a byte in 1/64ths. All gateways add and subtract the same bytes, so
 * nothing drifts.
 */
const inBytes = logs => Uint8Array.from(logs, log => Math.min(255, Math.round(log / 256)))

export async function messageSizes({ trace, artifact }) {
  const { replay, featuresOf, predictor } = await createStudyLibrary().evaluation(trace, artifact, 8)
  const cells = replay.layers * replay.experts
  const predict = predictor()
  const sums = { raw: 0, deflated: 0, bytes: 0, bytesDeflated: 0 }
  let requests = 0
  for (let row = 0; row < replay.rows; row++) {
    const chances = predict.chances({ id: 'x', ...featuresOf(replay.requestOf[row]) })
    if (chances === undefined) continue
    const logs = logsOf(chances)
    const small = inBytes(logs)
    requests++
    sums.raw += logs.byteLength
    sums.deflated += deflated(bytesOf(logs)).length
    sums.bytes += small.byteLength
    sums.bytesDeflated += deflated(bytesOf(small)).length
  }
  const event = { binary: binaryEvent(1, 999, 123_456).length, json: jsonEvent('d', 999, 123_456).length }
  const delta = Object.fromEntries(Object.entries(sums).map(([name, sum]) => [name, sum / requests]))
  return { cells, largeCells: LARGE_CELLS, requests, event, delta }
}
