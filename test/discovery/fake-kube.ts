/**
 * An API server of Kubernetes as far as EndpointSlices go, on real sockets: lists in pages, watches that
 * begin at a version, bookmarks, and everything that can go wrong with them, when a test says so.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { freePort } from '../free-port.ts'

export interface FakeEndpoint {
  readonly address: string
  readonly pod?: string
  readonly ready?: boolean
  readonly serving?: boolean
  readonly terminating?: boolean
}

export interface FakeSlice {
  readonly name: string
  readonly namespace?: string
  readonly labels: Readonly<Record<string, string>>
  readonly port: number
  readonly endpoints: readonly FakeEndpoint[]
}

interface Logged {
  readonly version: number
  readonly type: string
  readonly labels: Readonly<Record<string, string>>
  readonly namespace: string
  readonly object: object
}

interface Watch {
  readonly response: ServerResponse
  readonly wants: (event: Logged) => boolean
  hushed: boolean
}

export class FakeKube {
  readonly requests: {
    readonly path: string
    readonly query: URLSearchParams
    readonly token: string | undefined
  }[] = []
  /** Status of every response. */
  failWith: number | undefined
  /** The required token. */
  token: string | undefined
  /** Every page of a list announces another one. */
  isEndless = false
  /** How the server reports a version that is too old. */
  goneAs: 'status' | 'event' = 'status'
  /** How often each event is sent. */
  times = 1
  /** Bytes per piece of an event; each piece is its own packet. */
  pieceBytes: number | undefined
  readonly #server: Server
  readonly #slices = new Map<string, { readonly slice: FakeSlice; readonly object: object }>()
  readonly #log: Logged[] = []
  readonly #watches = new Set<Watch>()
  readonly #waiting = new Set<() => void>()
  #version = 100
  #oldest = 0
  #opened = 0

  private constructor(server: Server) {
    this.#server = server
    server.on('request', (request: IncomingMessage, response: ServerResponse) =>
      this.#serve(request, response),
    )
  }

  /** `port`: that of one that was closed; by default a free one. */
  static async start(
    tls?: { readonly cert: string; readonly key: string },
    port?: number,
  ): Promise<FakeKube> {
    const at = port ?? (await freePort())
    const server = tls === undefined ? createServer() : (createTlsServer(tls) as unknown as Server)
    const fake = new FakeKube(server)
    await new Promise<void>((resolve, reject) =>
      server.once('error', reject).listen(at, '127.0.0.1', resolve),
    )
    return fake
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  get version(): number {
    return this.#version
  }

  /** Adds a slice, or replaces it. */
  put(slice: FakeSlice): void {
    const key = `${slice.namespace ?? 'llm'}/${slice.name}`
    const type = this.#slices.has(key) ? 'MODIFIED' : 'ADDED'
    const object = objectOf(slice, ++this.#version)
    this.#slices.set(key, { slice, object })
    this.#tell({
      version: this.#version,
      type,
      labels: slice.labels,
      namespace: slice.namespace ?? 'llm',
      object,
    })
  }

  remove(name: string, namespace = 'llm'): void {
    const { slice } = this.#slices.get(`${namespace}/${name}`)!
    this.#slices.delete(`${namespace}/${name}`)
    this.#tell({
      version: ++this.#version,
      type: 'DELETED',
      labels: slice.labels,
      namespace,
      object: objectOf(slice, this.#version),
    })
  }

  /** Any event, to all watches. */
  send(event: object): void {
    this.sendText(`${JSON.stringify(event)}\n`)
  }

  sendText(text: string): void {
    for (const watch of this.#watches) this.#write(watch, text)
  }

  bookmark(): void {
    this.send({
      type: 'BOOKMARK',
      object: { kind: 'EndpointSlice', metadata: { resourceVersion: String(++this.#version) } },
    })
  }

  /** Forgets all versions before now. */
  compact(): void {
    this.#oldest = ++this.#version
    this.#log.length = 0
  }

  /** Ends all watches in order. */
  endWatches(): void {
    for (const { response } of this.#watches) response.end()
  }

  /** Cuts all watches within an event. */
  cutWatches(): void {
    for (const { response } of this.#watches)
      response.write('{"type":"MODIFIED","object":{"kind":"EndpointSl', () => response.socket?.destroy())
  }

  /** Silences the watches that are open now. */
  hushWatches(): void {
    for (const watch of this.#watches) watch.hushed = true
  }

  /** Resolves when this many watches have been opened since the start. */
  async watched(count: number): Promise<void> {
    while (this.#opened < count) await new Promise<void>(resolve => this.#waiting.add(resolve))
  }

  /** Resolves with the next matching request. */
  async asked(wanted: (query: URLSearchParams) => boolean): Promise<URLSearchParams> {
    for (let at = this.requests.length; ; at++) {
      while (at >= this.requests.length) await new Promise<void>(resolve => this.#waiting.add(resolve))
      if (wanted(this.requests[at]!.query)) return this.requests[at]!.query
    }
  }

  get opened(): number {
    return this.#opened
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections()
    await new Promise(resolve => this.#server.close(resolve))
  }

  #serve(request: IncomingMessage, response: ServerResponse): void {
    const url = new URL(request.url!, 'http://api')
    const token = /^Bearer (.*)$/.exec(request.headers.authorization ?? '')?.[1]
    this.requests.push({ path: url.pathname, query: url.searchParams, token })
    const status = this.failWith ?? (this.token !== undefined && token !== this.token ? 401 : undefined)
    if (status !== undefined) this.#fail(response, status)
    else this.#answer(url, response)
    for (const wake of this.#waiting) wake()
    this.#waiting.clear()
  }

  #answer(url: URL, response: ServerResponse): void {
    const where = /^\/apis\/discovery\.k8s\.io\/v1(?:\/namespaces\/([^/]+))?\/endpointslices$/.exec(
      url.pathname,
    )
    if (where === null) return this.#fail(response, 404)
    const labels = (url.searchParams.get('labelSelector') ?? '').split(',').map(label => label.split('='))
    const wants = (each: { readonly labels: Readonly<Record<string, string>>; readonly namespace: string }) =>
      labels.every(([key, value]) => each.labels[key!] === value) &&
      (where[1] === undefined || each.namespace === where[1])
    if (url.searchParams.get('watch') !== null)
      return this.#watch(response, Number(url.searchParams.get('resourceVersion')), wants)
    const all = [...this.#slices.values()].filter(({ slice }) =>
      wants({ labels: slice.labels, namespace: slice.namespace ?? 'llm' }),
    )
    const from = Number(url.searchParams.get('continue') ?? 0)
    const to = from + Number(url.searchParams.get('limit') ?? all.length)
    const metadata = {
      resourceVersion: String(this.#version),
      ...((this.isEndless || to < all.length) && { continue: String(to) }),
    }
    response.setHeader('content-type', 'application/json')
    response.end(
      JSON.stringify({
        kind: 'EndpointSliceList',
        metadata,
        items: all.slice(from, to).map(({ object }) => object),
      }),
    )
  }

  #watch(response: ServerResponse, from: number, wants: Watch['wants']): void {
    if (from < this.#oldest && this.goneAs === 'status') return this.#fail(response, 410)
    const watch: Watch = { response, wants, hushed: false }
    response.writeHead(200, { 'content-type': 'application/json' }).flushHeaders()
    this.#opened++
    if (from < this.#oldest) {
      response.end(
        `${JSON.stringify({ type: 'ERROR', object: { kind: 'Status', code: 410, reason: 'Expired' } })}\n`,
      )
      return
    }
    for (const event of this.#log) if (event.version > from && wants(event)) this.#write(watch, lineOf(event))
    this.#watches.add(watch)
    response.once('close', () => this.#watches.delete(watch))
  }

  #tell(event: Logged): void {
    this.#log.push(event)
    for (const watch of this.#watches)
      if (watch.wants(event)) this.#write(watch, lineOf(event).repeat(this.times))
  }

  #write({ response, hushed }: Watch, text: string): void {
    if (hushed) return
    const bytes = Buffer.from(text)
    if (this.pieceBytes === undefined) return void response.write(bytes)
    response.socket?.setNoDelay(true)
    for (let at = 0; at < bytes.length; at += this.pieceBytes)
      response.write(bytes.subarray(at, at + this.pieceBytes))
  }

  #fail(response: ServerResponse, status: number): void {
    response
      .writeHead(status, { 'content-type': 'application/json' })
      .end(JSON.stringify({ kind: 'Status', status: 'Failure', code: status }))
  }
}

const lineOf = ({ type, object }: Logged) => `${JSON.stringify({ type, object })}\n`

function objectOf({ name, namespace = 'llm', labels, port, endpoints }: FakeSlice, version: number): object {
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: { name, namespace, labels, resourceVersion: String(version) },
    addressType: 'IPv4',
    ports: [{ name: 'http', port, protocol: 'TCP' }],
    endpoints: endpoints.map(({ address, pod, ready = true, serving = ready, terminating = false }) => ({
      addresses: [address],
      conditions: { ready: ready && !terminating, serving, terminating },
      ...(pod !== undefined && { targetRef: { kind: 'Pod', name: pod, namespace } }),
    })),
  }
}
