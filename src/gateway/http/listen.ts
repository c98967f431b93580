/** The HTTP server: limits on what clients may send and how slowly, and error responses to invalid HTTP. */
import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
} from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { AddressInfo, Server as NetServer, Socket } from 'node:net'
import { EldrError } from '../../errors.ts'
import { type RefusalCode, errorBody, Refusal } from './refusal.ts'
import type { ServerSettings, ServerTls } from '../config/settings.ts'
import { failBody } from './read-body.ts'
import { endGently } from './refuse.ts'
import { checkPair, readPem } from './tls-files.ts'

type Handle = (request: IncomingMessage, response: ServerResponse, proceed?: () => void) => void

/** `refused` is called for input that is rejected before it is a valid request. */
export function createListener(
  settings: ServerSettings,
  handle: Handle,
  refused: (code: RefusalCode) => void = () => {},
): Server {
  const options = {
    maxHeaderSize: settings.maxHeaderBytes,
    headersTimeout: settings.headersTimeoutMs,
    requestTimeout: settings.bodyTimeoutMs,
    keepAliveTimeout: settings.keepAliveMs,
    connectionsCheckingInterval: Math.max(100, Math.min(1_000, settings.headersTimeoutMs / 2)),
    noDelay: true,
    requireHostHeader: false, // the gateway's own check says why
  }
  const newest: Newest = new WeakMap()
  const serve: Handle = (request, response, proceed) => {
    // Bytes after a request that closes the connection have been read with it, but are not served.
    if (newest.get(request.socket)?.response.shouldKeepAlive === false) return
    newest.set(request.socket, { request, response })
    handle(request, response, proceed)
  }
  const listener: RequestListener = (request, response) => serve(request, response)
  const server =
    settings.tls === undefined
      ? createServer(options, listener)
      : createTlsServer(
          { ...options, ...tlsOf(settings.tls), handshakeTimeout: settings.headersTimeoutMs },
          listener,
        )
  server.on('checkContinue', (request: IncomingMessage, response: ServerResponse) =>
    serve(request, response, () => response.writeContinue()),
  )
  server.on('checkExpectation', (request: IncomingMessage, response: ServerResponse) => {
    newest.set(request.socket, { request, response })
    refuseExpectation(response)
    refused('ELDR_BAD_REQUEST')
  })
  const failed = new WeakSet<Socket>()
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Socket) => {
    if (failed.has(socket)) return // the parser fails again on everything that follows
    failed.add(socket)
    refuseBytes(error, socket, newest.get(socket), refused)
  })
  server.maxRequestsPerSocket = 0
  return server
}

/**
 * The last request of each connection. Earlier ones are complete, or the parser would not have reached it.
 */
type Newest = WeakMap<Socket, { readonly request: IncomingMessage; readonly response: ServerResponse }>

/** Accept backlog: the most that Linux allows, for clients that all reconnect at once. */
const BACKLOG = 4_096

/** A listening socket of another process, as Node passes it between processes. */
export interface ListenHandle {
  close(): void
}

/** The handle of a server that listens: the member of a server that Node's `listen` reads. */
export function handleOf(server: NetServer): ListenHandle {
  return Reflect.get(server, '_handle') as ListenHandle
}

/** `on`: path of a Unix socket, or a handle, in place of the address. */
export async function listen(
  server: NetServer,
  host: string,
  port: number,
  on?: string | ListenHandle,
): Promise<string> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', (cause: NodeJS.ErrnoException) => {
      const found = `${host}:${port} (${cause.code ?? cause.message})`
      reject(
        new EldrError('ELDR_PORT_TAKEN', {
          found,
          todo: 'Choose another --port or --host; 0 takes any port that is free.',
          cause,
        }),
      )
    })
    if (on === undefined) server.listen({ port, host, backlog: BACKLOG }, resolve)
    else server.listen(on, resolve)
  })
  // A connection that cannot be accepted for lack of file descriptors is not fatal: the next may be.
  server.on('error', () => {})
  return typeof on === 'string' ? on : addressOf(server)
}

export function addressOf(server: NetServer): string {
  const { address, port: actual, family } = server.address() as AddressInfo
  return `${family === 'IPv6' ? `[${address}]` : address}:${actual}`
}

/**
 * Invalid HTTP, and requests that arrive too slowly, get an HTTP error if the client can still read it: in
 * place of the response to the broken request, or after the responses to earlier ones.
 */
function refuseBytes(
  error: NodeJS.ErrnoException,
  socket: Socket,
  last: { request: IncomingMessage; response: ServerResponse } | undefined,
  refused: (code: RefusalCode) => void,
): void {
  if (socket.destroyed || !socket.writable || error.code === 'ECONNRESET') return void socket.destroy()
  const [line, refusal] =
    error.code === 'HPE_HEADER_OVERFLOW'
      ? [
          '431 Request Header Fields Too Large',
          new Refusal('ELDR_BAD_REQUEST', { words: 'The headers are too large.' }),
        ]
      : error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
        ? ['408 Request Timeout', new Refusal('ELDR_CLIENT_SLOW')]
        : ['400 Bad Request', new Refusal('ELDR_BAD_REQUEST')]
  const answer = () => {
    refused(refusal.code)
    return rawResponse(line, refusal)
  }
  if (last === undefined) return endGently(socket, answer())
  const { request, response } = last
  // The connection closes after that response.
  if (!response.shouldKeepAlive && request.complete) return undefined
  if (response.writableFinished) {
    // The rest of the body of a request that already has its response.
    return endGently(socket, request.complete ? answer() : '')
  }
  if (!request.complete) {
    response.shouldKeepAlive = false
    return failBody(request, refusal)
  }
  response.once('close', () => {
    if (socket.writable) endGently(socket, answer())
  })
  return undefined
}

function rawResponse(line: string, refusal: Refusal): string {
  const body = errorBody(refusal)
  return `HTTP/1.1 ${line}\r\n${Object.entries(headersOf(refusal, body))
    .map(([name, value]) => `${name}: ${value}\r\n`)
    .join('')}\r\n${body}`
}

function refuseExpectation(response: ServerResponse): void {
  const refusal = new Refusal('ELDR_BAD_REQUEST', {
    words: 'Unsupported Expect header; only 100-continue is supported.',
  })
  const body = errorBody(refusal)
  response.shouldKeepAlive = false
  response.writeHead(417, headersOf(refusal, body)).end(body)
}

function headersOf(refusal: Refusal, body: string): Record<string, string> {
  const length = String(Buffer.byteLength(body))
  return {
    'content-type': 'application/json',
    'x-eldr-error-code': refusal.code,
    'content-length': length,
    connection: 'close',
  }
}

function tlsOf({ certFile, keyFile, caFile }: ServerTls) {
  const options = {
    cert: readPem(certFile),
    key: readPem(keyFile),
    ca: caFile && readPem(caFile),
    requestCert: caFile !== undefined,
    rejectUnauthorized: caFile !== undefined,
  }
  checkPair(options, `${certFile} and ${keyFile}`)
  return options
}
