/** The decode worker's end of the side channel: one connection for each thing asked, every wait bounded. */
import { connect, type Socket } from 'node:net'
import type { KvPayload } from '../types.ts'
import { DATA_BYTES, type Frame, FrameError, FrameReader, objectIn, textFrame } from './frames.ts'

/** Where blocks are, as a hand-off says it. */
export interface KvPlace {
  readonly host: string
  readonly port: number
  readonly engineId: string
  readonly requestId: string
}

export interface KvLimits {
  readonly connectMs: number
  /** Between two pieces of an answer. */
  readonly idleMs: number
  readonly totalMs: number
  readonly mostBytes: number
}

export const KV_LIMITS: KvLimits = { connectMs: 5_000, idleMs: 10_000, totalMs: 120_000, mostBytes: 1 << 30 }

export type KvFailureKind = 'unreachable' | 'timeout' | 'broken' | 'refused' | 'stopped'

/** `message` is for the log and for the answer's error; it names no address. */
export class KvFailure extends Error {
  override name = 'KvFailure'
  readonly kind: KvFailureKind

  constructor(kind: KvFailureKind, message: string) {
    super(message)
    this.kind = kind
  }
}

/** Reads the blocks and has them freed there. `tokens` and `promptHash` are what this worker expects. */
export function readKv(
  place: KvPlace,
  expected: { readonly tokens: number; readonly promptHash: string },
  limits: KvLimits,
  stop: AbortSignal,
): Promise<KvPayload> {
  // Memory is taken as data comes, not as it is announced.
  const parts: Buffer[] = []
  let missing: number | undefined
  return converse(
    place,
    limits,
    stop,
    (frame, say) => {
      if (frame.type === 'coming') {
        if (missing !== undefined) throw new FrameError('the blocks are announced twice')
        const { tokens, bytes: size } = objectIn(frame)
        if (tokens !== expected.tokens)
          throw new KvFailure(
            'refused',
            `the prefill worker holds ${String(tokens)} tokens, the hand-off says ${expected.tokens}`,
          )
        if (!Number.isInteger(size) || (size as number) < 0 || (size as number) > limits.mostBytes)
          throw new FrameError(`${String(size)} bytes are announced`)
        missing = size as number
      } else if (frame.type === 'data') {
        if (missing === undefined || frame.payload.length > missing)
          throw new FrameError('more data than announced')
        parts.push(frame.payload)
        missing -= frame.payload.length
      } else throw new FrameError(`a ${frame.type} frame in the place of data`)
      if (missing > 0) return undefined
      // The blocks are here, every piece of them checked: nobody waits for the answer to this.
      say(textFrame('acknowledge', named(place)))
      return { bytes: Buffer.concat(parts), tokens: expected.tokens }
    },
    textFrame('read', { ...named(place), prompt_hash: expected.promptHash }),
  )
}

/** Lengthens the lease; resolves with its whole length. */
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

/** The blocks will not be read. */
export async function releaseKv(place: KvPlace, limits: KvLimits, stop: AbortSignal): Promise<void> {
  await converse(place, limits, stop, () => true, textFrame('release', named(place)))
}

function named({ engineId, requestId }: KvPlace) {
  return { engine_id: engineId, request_id: requestId }
}

/** Sends one request and gives frames to `take` until it has a result. */
function converse<T>(
  { host, port }: KvPlace,
  { connectMs, idleMs, totalMs }: KvLimits,
  stop: AbortSignal,
  take: (frame: Frame, say: (bytes: Buffer) => void) => T | undefined,
  request: Buffer,
): Promise<T> {
  return new Promise((resolve, reject) => {
    if (stop.aborted) return reject(new KvFailure('stopped', 'the request was called off'))
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
    const onStop = () => fail(new KvFailure('stopped', 'the request was called off'))
    stop.addEventListener('abort', onStop)
    const timer = setTimeout(
      () => fail(new KvFailure('timeout', `the prefill worker has not sent everything within ${totalMs} ms`)),
      totalMs,
    )
    socket.setTimeout(connectMs, () =>
      fail(
        new KvFailure(
          'timeout',
          connected ? 'the prefill worker has stopped sending' : 'the prefill worker does not answer',
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
          `${connected ? 'the prefill worker broke off' : 'the prefill worker cannot be reached'} (${error.code ?? 'error'})`,
        ),
      ),
    )
    socket.on('close', () => fail(new KvFailure('broken', 'the prefill worker broke off')))
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
          fail(new KvFailure('broken', `the prefill worker is not understood: ${error.message}`))
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
