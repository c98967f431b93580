/**
 * The prefill worker's end of the side channel: hands kept blocks to whoever names them rightly, renews leases, takes them back. What a
 * peer sends can end its own connection and nothing else.
 */
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import { EldrError } from '../../errors.ts'
import {
  DATA_BYTES,
  type Frame,
  FrameError,
  FrameReader,
  headOf,
  MOST_TEXT_BYTES,
  objectIn,
  textFrame,
} from './frames.ts'
import type { LeaseBook } from './leases.ts'

/** Why a decode worker does not get what it asks for. */
export type KvRefusal = 'gone' | 'wrong_engine' | 'wrong_prompt' | 'bad_frame' | 'fault'

export interface KvServerOptions {
  readonly host: string
  /** 0: any that is free. */
  readonly port: number
  /** Changes with every start: a hand-off of an earlier life finds nothing, even under the same name and port. */
  readonly engineId: string
  readonly leases: LeaseBook
  /** A peer that sends and takes nothing for so long is cut off. */
  readonly idleMs?: number
  readonly mostConnections?: number
  readonly onSent?: (bytes: number) => void
  readonly onBadFrame?: (why: string) => void
  /** Something of ours threw; the peer is told that it did. */
  readonly onFault?: (error: unknown) => void
}

const IDLE_MS = 30_000
const MOST_CONNECTIONS = 4_096

export class KvServer {
  readonly #options: KvServerOptions
  readonly #server: Server
  readonly #sockets = new Set<Socket>()

  constructor(options: KvServerOptions) {
    this.#options = options
    this.#server = createServer({ noDelay: true }, socket => this.#accept(socket))
    this.#server.maxConnections = options.mostConnections ?? MOST_CONNECTIONS
  }

  get connections(): number {
    return this.#sockets.size
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  async listen(): Promise<void> {
    const { host, port } = this.#options
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', (cause: NodeJS.ErrnoException) => {
        const found = `${host}:${port} (${cause.code ?? cause.message})`
        reject(
          new EldrError('ELDR_PORT_TAKEN', {
            found,
            todo: 'Choose another --kv-port or --host; 0 takes any port that is free.',
            cause,
          }),
        )
      })
      this.#server.listen(port, host, resolve)
    })
  }

  async close(): Promise<void> {
    this.#options.leases.close()
    for (const socket of this.#sockets) socket.destroy()
    await new Promise<void>(resolve => this.#server.close(() => resolve()))
  }

  #accept(socket: Socket): void {
    this.#sockets.add(socket)
    const reader = new FrameReader(MOST_TEXT_BYTES)
    socket.setTimeout(this.#options.idleMs ?? IDLE_MS, () => socket.destroy())
    socket.on('error', () => socket.destroy())
    socket.on('close', () => this.#sockets.delete(socket))
    // One answer after the other, and nothing more is read until the peer has taken them: what it may keep here is one read.
    socket.on('data', chunk => {
      socket.pause()
      this.#serve(socket, reader.push(chunk)).then(
        () => socket.resume(),
        error => this.#giveUp(socket, error),
      )
    })
  }

  /** Rejects when there is no going on with this peer. */
  async #serve(socket: Socket, frames: Iterable<Frame>): Promise<void> {
    for (const frame of frames) {
      await this.#answer(socket, frame)
      if (socket.writableNeedDrain && !(await drained(socket))) return
    }
  }

  async #answer(socket: Socket, frame: Frame): Promise<void> {
    const { engineId, leases } = this.#options
    const asked = objectIn(frame)
    const id = String(asked['request_id'])
    if (asked['engine_id'] !== engineId)
      return refuse(
        socket,
        'wrong_engine',
        `the engine here is ${engineId}: it was started anew, or never was the one asked for`,
      )
    switch (frame.type) {
      case 'read':
        return this.#send(socket, id, asked)
      case 'renew': {
        if (!leases.renew(id)) return refuse(socket, 'gone', `nothing is kept for ${id}`)
        return void socket.write(textFrame('done', { lease_ms: leases.leaseMs }))
      }
      case 'acknowledge':
      case 'release': {
        const ended = leases.end(id, frame.type === 'release' ? 'released' : 'read')
        return void socket.write(textFrame('done', { freed: ended }))
      }
      default:
        throw new FrameError(`a ${frame.type} frame is for decode workers`)
    }
  }

  async #send(socket: Socket, id: string, asked: Record<string, unknown>): Promise<void> {
    const { leases, onSent } = this.#options
    const kept = leases.find(id)
    if (kept === undefined)
      return refuse(
        socket,
        'gone',
        `nothing is kept for ${id}: the lease has ended, or the blocks were read before`,
      )
    if (asked['prompt_hash'] !== kept.promptHash)
      return refuse(socket, 'wrong_prompt', `the blocks of ${id} are of another prompt`)
    // A copy, taken at once: however long the transfer lasts, blocks that are used again meanwhile cannot get into it.
    const { bytes, tokens } = kept.blocks.export()
    socket.write(textFrame('coming', { tokens, bytes: bytes.length }))
    for (let at = 0; at < bytes.length; at += DATA_BYTES) {
      const part = bytes.subarray(at, at + DATA_BYTES)
      socket.write(headOf('data', part))
      if (!socket.write(part) && !(await drained(socket))) return undefined
    }
    onSent?.(bytes.length)
    return undefined
  }

  #giveUp(socket: Socket, error: unknown): void {
    if (error instanceof FrameError) {
      this.#options.onBadFrame?.(error.message)
      refuse(socket, 'bad_frame', error.message)
    } else {
      this.#options.onFault?.(error)
      refuse(socket, 'fault', 'the prefill worker failed over it')
    }
    socket.destroySoon()
  }
}

function refuse(socket: Socket, code: KvRefusal, message: string): void {
  socket.write(textFrame('failure', { code, message }))
}

/** False when the peer has gone instead. */
function drained(socket: Socket): Promise<boolean> {
  return new Promise(resolve => {
    const settle = (taken: boolean) => () => {
      socket.off('drain', onDrain).off('close', onClose)
      resolve(taken)
    }
    const [onDrain, onClose] = [settle(true), settle(false)]
    if (socket.destroyed) return resolve(false)
    socket.on('drain', onDrain).on('close', onClose)
    return undefined
  })
}
