/** The decode worker’s end of the side channel: one connection per request, with a timeout on every wait. */
import { connect, type Socket } from 'node:net'
import type { KvPayload } from '../types.ts'
import { DATA_BYTES, type Frame, FrameError, FrameReader, objectIn, textFrame } from './frames.ts'

/** Where blocks are, according to a hand-off. */
export interface KvPlace {
  readonly host: string
  readonly port: number
  readonly engineId: string
  readonly requestId: string
}

export interface KvLimits {
  readonly connectMs: number
  /** Between two chunks of a response. */
  readonly idleMs: number
  readonly totalMs: number
  readonly maxBytes: number
}

export const KV_LIMITS: KvLimits = { connectMs: 5_000, idleMs: 10_000, totalMs: 120_000, maxBytes: 1 << 30 }

export type KvFailureKind = 'unreachable' | 'timeout' | 'broken' | 'refused' | 'stopped'

/** `message` goes to the log and the error response; it contains no address. */
export class KvFailure extends Error {
  override name = 'KvFailure'
  readonly kind: KvFailureKind

  constructor(kind: KvFailureKind, message: string) {
    super(message)
    this.kind = kind
  }
}

/**
 * Reads the KV from token `from` on and frees the blocks at the prefill worker. `tokens` and `promptHash` are
 * what this worker expects.
 */
export function readKv(
  place: KvPlace,
  expected: { readonly from: number; readonly tokens: number; readonly promptHash: string },
  limits: KvLimits,
  stop: AbortSignal,
): Promise<KvPayload> {
  // Memory is allocated as data arrives, not as announced.
  const parts: Buffer[] = []
  let missing: number | undefined
  return converse(
    place,
    limits,
    stop,
    (frame, say) => {
      if (frame.type === 'coming') {
        if (missing !== undefined) throw new FrameError('blocks announced twice')
        const { tokens, bytes: size } = objectIn(frame)
        if (tokens !== expected.tokens)
          throw new KvFailure(
            'refused',
            `the prefill worker holds ${String(tokens)} tokens, the hand-off says ${expected.tokens}`,
          )
        if (!Number.isInteger(size) || (size as number) < 0 || (size as number) > limits.maxBytes)
          throw new FrameError(`announced size ${String(size)} is invalid`)
        missing = size as number
      } else if (frame.type === 'data') {
        if (missing === undefined || frame.payload.length > missing)
          throw new FrameError('more data than announced')
        parts.push(frame.payload)
        missing -= frame.payload.length
      } else throw new FrameError(`a ${frame.type} frame instead of data`)
      if (missing > 0) return undefined
      // All blocks have arrived and passed their checksums. The response to this frame is not awaited.
      say(textFrame('acknowledge', named(place)))
      return { bytes: Buffer.concat(parts), tokens: expected.tokens }
    },
    textFrame('read', { ...named(place), prompt_hash: expected.promptHash, from: expected.from }),
  )
}

/** Renews the lease; resolves with its full duration. */
export async function renewKv(
  place: KvPlace,
  limits: KvLimits,
  stop: AbortSignal,
): Promise<number | undefined> {
  const answer = await converse(
    place,
    limits,
    stop,
    frame => objectIn(frame),
    textFrame('renew', named(place)),
  )
  const leaseMs = answer['lease_ms']
  return typeof leaseMs === 'number' && leaseMs > 0 ? leaseMs : undefined
}

/** Tells the prefill worker that the blocks will not be read. */
export async function releaseKv(place: KvPlace, limits: KvLimits, stop: AbortSignal): Promise<void> {
  await converse(place, limits, stop, () => true, textFrame('release', named(place)))
}

function named({ engineId, requestId }: KvPlace) {
  return { engine_id: engineId, request_id: requestId }
}

/** Sends one request and passes frames to `take` until it returns a result. */
function converse<T>(
  { host, port }: KvPlace,
  { connectMs, idleMs, totalMs }: KvLimits,
  stop: AbortSignal,
  take: (frame: Frame, say: (bytes: Buffer) => void) => T | undefined,
  request: Buffer,
): Promise<T> {
  return new Promise((resolve, reject) => {
    if (stop.aborted) return reject(new KvFailure('stopped', 'the request was aborted'))
    const reader = new FrameReader(DATA_BYTES)
    let connected = false
    let settled = false
    const socket: Socket = connect({ host, port, noDelay: true })
    const settle = (act: () => void) => {
      if (settled) return
      settled = true
      clearTimeout(timer)
      stop.removeEventListener('abort', onStop)
      act()
    }
    const fail = (failure: Error) => {
      settle(() => reject(failure))
      socket.destroy()
    }
    const onStop = () => fail(new KvFailure('stopped', 'the request was aborted'))
    stop.addEventListener('abort', onStop)
    const timer = setTimeout(
      () => fail(new KvFailure('timeout', `the prefill worker did not send everything within ${totalMs} ms`)),
      totalMs,
    )
    socket.setTimeout(connectMs, () =>
      fail(
        new KvFailure(
          'timeout',
          connected ? 'the prefill worker stopped sending' : 'the prefill worker does not respond',
        ),
      ),
    )
    socket.on('connect', () => {
      connected = true
      socket.setTimeout(idleMs)
      socket.write(request)
    })
    socket.on('error', (error: NodeJS.ErrnoException) =>
      fail(
        new KvFailure(
          connected ? 'broken' : 'unreachable',
          `${connected ? 'the prefill worker closed the connection' : 'the prefill worker cannot be reached'} (${error.code ?? 'error'})`,
        ),
      ),
    )
    socket.on('close', () => fail(new KvFailure('broken', 'the prefill worker closed the connection')))
    socket.on('data', chunk => {
      if (settled) return
      try {
        for (const frame of reader.push(chunk)) {
          if (frame.type === 'failure') throw refusalIn(frame)
          const result = take(frame, bytes => socket.write(bytes))
          if (result === undefined) continue
          socket.end()
          settle(() => resolve(result))
          return
        }
      } catch (error) {
        if (error instanceof KvFailure) fail(error)
        else if (error instanceof FrameError)
          fail(new KvFailure('broken', `invalid response of the prefill worker: ${error.message}`))
        else throw error
      }
    })
    return undefined
  })
}

function refusalIn(frame: Frame): KvFailure {
  const { message } = objectIn(frame)
  return new KvFailure('refused', typeof message === 'string' ? message.slice(0, 500) : 'no reason given')
}
