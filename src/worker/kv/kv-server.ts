/**
 * The prefill worker’s end of the side channel: sends leased blocks to peers that identify them correctly,
 * renews leases and frees blocks. Whatever a peer sends affects only its own connection.
 */
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import { EldrError } from '../../errors.ts'
import {
  DATA_BYTES,
  type Frame,
  FrameError,
  FrameReader,
  headOf,
  MAX_TEXT_BYTES,
  objectIn,
  textFrame,
} from './frames.ts'
import type { LeaseBook } from './leases.ts'

/** Why a request of a decode worker is refused. */
export type KvRefusal = 'gone' | 'wrong_engine' | 'wrong_prompt' | 'bad_frame' | 'fault'

export interface KvServerOptions {
  readonly host: string
  /** 0: any free port. */
  readonly port: number
  /**
   * Changes at every start, so a hand-off from before a restart finds nothing, even with the same name and
   * port.
   */
  readonly engineId: string
  readonly leases: LeaseBook
  /** Idle timeout of a connection. */
  readonly idleMs?: number
  readonly maxConnections?: number
  readonly onSent?: (bytes: number) => void
  readonly onBadFrame?: (why: string) => void
  /** Internal error; the peer receives a failure frame. */
  readonly onFault?: (error: unknown) => void
}

const IDLE_MS = 30_000
const MAX_CONNECTIONS = 4_096

export class KvServer {
  readonly #options: KvServerOptions
  readonly #server: Server
  readonly #sockets = new Set<Socket>()

  constructor(options: KvServerOptions) {
    this.#options = options
    this.#server = createServer({ noDelay: true }, socket => this.#accept(socket))
    this.#server.maxConnections = options.maxConnections ?? MAX_CONNECTIONS
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
            todo: 'Choose another --kv-port or --host; 0 selects any free port.',
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
    const reader = new FrameReader(MAX_TEXT_BYTES)
    socket.setTimeout(this.#options.idleMs ?? IDLE_MS, () => socket.destroy())
    socket.on('error', () => socket.destroy())
    socket.on('close', () => this.#sockets.delete(socket))
    // One response at a time, and nothing more is read until the peer has received it: a peer can occupy one
    // read buffer.
    socket.on('data', chunk => {
      socket.pause()
      this.#serve(socket, reader.push(chunk)).then(
        () => socket.resume(),
        error => this.#giveUp(socket, error),
      )
    })
  }

  /** Rejects if the connection cannot be continued. */
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
        `this is engine ${engineId}: it was restarted, or the address is wrong`,
      )
    switch (frame.type) {
      case 'read':
        return this.#send(socket, id, asked)
      case 'renew': {
        if (!leases.renew(id)) return refuse(socket, 'gone', `no blocks are leased for ${id}`)
        return void socket.write(textFrame('done', { lease_ms: leases.leaseMs }))
      }
      case 'acknowledge':
      case 'release': {
        const ended = leases.end(id, frame.type === 'release' ? 'released' : 'read')
        return void socket.write(textFrame('done', { freed: ended }))
      }
      default:
        throw new FrameError(`unexpected ${frame.type} frame from a decode worker`)
    }
  }

  async #send(socket: Socket, id: string, asked: Record<string, unknown>): Promise<void> {
    const { leases, onSent } = this.#options
    const kept = leases.find(id)
    if (kept === undefined)
      return refuse(
        socket,
        'gone',
        `no blocks are leased for ${id}: the lease has expired, or the blocks were read before`,
      )
    if (asked['prompt_hash'] !== kept.promptHash)
      return refuse(socket, 'wrong_prompt', `the blocks of ${id} belong to another prompt`)
    const { from } = asked
    if (!Number.isInteger(from) || (from as number) < 0 || (from as number) > kept.blocks.tokens)
      throw new FrameError(`cannot read from token ${String(from)} of ${kept.blocks.tokens}`)
    // Copied immediately, so that blocks reused during a slow transfer cannot leak into it.
    const { bytes, tokens } = kept.blocks.export(from as number)
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
      refuse(socket, 'fault', 'internal error of the prefill worker')
    }
    socket.destroySoon()
  }
}

function refuse(socket: Socket, code: KvRefusal, message: string): void {
  socket.write(textFrame('failure', { code, message }))
}

/** False if the peer closed the connection instead. */
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
