/** TLS on both sides of the gateway: to clients with its own certificate, to workers with theirs. */
import { readFileSync } from 'node:fs'
import { once } from 'node:events'
import { request } from 'node:https'
import { type AddressInfo, connect } from 'node:net'
import { createServer, type Server, type TlsOptions } from 'node:tls'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createListener } from '../../src/gateway/http/listen.ts'
import type { ServerSettings } from '../../src/gateway/config/settings.ts'
import { type FakeWorker, startFakeWorker } from '../fake-worker/index.ts'
import { Upstreams } from '../../src/gateway/upstream/upstreams.ts'
import { type Cluster, SHAPE, startCluster } from './cluster.ts'
import { RawClient } from './raw-socket.ts'
import { HAS_OPENSSL, makeCertificates } from './tls-files.ts'
import { eventually } from './watching.ts'

if (!HAS_OPENSSL) console.warn('no openssl: the TLS tests are skipped')

describe.runIf(HAS_OPENSSL)('TLS', () => {
  let pairs: ReturnType<typeof makeCertificates<'gateway' | 'client' | 'worker' | 'elsewhere'>>
  beforeAll(() => void (pairs = makeCertificates('gateway', 'client', 'worker', 'elsewhere')))
  afterAll(() => pairs.remove())

  describe('to clients', () => {
    let cluster: Cluster
    afterAll(() => cluster.stop())

    it('uses the configured certificate', async () => {
      cluster = await startCluster({ prefill: 1, decode: 1, config: { server: { tls: pairs.gateway } } })
      expect(cluster.url).toMatch(/^https:/)
      expect(await post(cluster.url, pairs.gateway.certFile)).toMatchObject({ status: 200 })
      expect(await post(cluster.url, pairs.elsewhere.certFile)).toMatchObject({
        error: 'DEPTH_ZERO_SELF_SIGNED_CERT',
      })
    })

    it('is required: plain HTTP gets no response and does not disturb other clients', async () => {
      const raw = new RawClient(cluster.url).send('GET /health HTTP/1.1\r\nHost: a\r\n\r\n')
      expect(await raw.toEnd().catch(() => [])).toEqual([])
      expect(await post(cluster.url, pairs.gateway.certFile)).toMatchObject({ status: 200 })
    })

    it('accepts only clients with a certificate of the configured authority', async () => {
      const strict = await startCluster({
        prefill: 1,
        decode: 1,
        config: { server: { tls: { ...pairs.gateway, caFile: pairs.client.certFile } } },
      })
      expect(await post(strict.url, pairs.gateway.certFile)).toHaveProperty('error')
      expect(await post(strict.url, pairs.gateway.certFile, pairs.worker)).toHaveProperty('error')
      expect(await post(strict.url, pairs.gateway.certFile, pairs.client)).toMatchObject({ status: 200 })
      await strict.stop()
    })

    it('fails at startup if a certificate or key file is invalid', () => {
      const settings = (certFile: string, keyFile: string) =>
        ({ headersTimeoutMs: 1000, tls: { certFile, keyFile } }) as ServerSettings
      const { gateway, client } = pairs
      expect(() => createListener(settings('no-such-file', gateway.keyFile), () => {})).toThrow(
        expect.objectContaining({ code: 'ELDR_FILE_UNREADABLE' }),
      )
      expect(() => createListener(settings(gateway.keyFile, gateway.keyFile), () => {})).toThrow(
        expect.objectContaining({ code: 'ELDR_CONFIG_INVALID' }),
      )
      expect(() => createListener(settings(gateway.certFile, client.keyFile), () => {})).toThrow(
        expect.objectContaining({ code: 'ELDR_CONFIG_INVALID' }),
      )
    })
  })

  describe('to workers', () => {
    const workers: FakeWorker[] = []
    const servers: Server[] = []
    afterAll(async () => {
      for (const server of servers) server.close()
      await Promise.all(workers.map(worker => worker.close()))
    })

    /** A gateway whose workers use TLS. */
    async function startWith(tls: Record<string, unknown>, options: TlsOptions = {}): Promise<Cluster> {
      const prefill = await startFakeWorker({ role: 'prefill', counts: SHAPE })
      const decode = await startFakeWorker({ role: 'decode', prefills: [prefill] })
      workers.push(prefill, decode)
      const urls = await Promise.all(
        [prefill, decode].map(worker => terminate(worker, { ...keysOf(pairs.worker), ...options })),
      )
      return startCluster({
        prefill: 0,
        decode: 0,
        config: { workers: { prefill: [urls[0]], decode: [urls[1]], tls }, health: { intervalMs: 50 } },
      })
    }

    async function terminate(worker: FakeWorker, options: TlsOptions): Promise<string> {
      const server = createServer(options, socket => {
        const inner = connect(worker.port, '127.0.0.1')
        socket.on('error', () => inner.destroy()).pipe(inner)
        inner.on('error', () => socket.destroy()).pipe(socket)
      })
      server.on('tlsClientError', () => {})
      servers.push(server)
      server.listen(0, '127.0.0.1')
      await once(server, 'listening')
      return `https://127.0.0.1:${(server.address() as AddressInfo).port}`
    }

    /** The outcome of a request after the first health check of every worker. */
    async function outcome(cluster: Cluster): Promise<string> {
      const { registry } = cluster.gateway.context
      await eventually(() => registry.views(performance.now()).every(({ state }) => state !== 'unknown'))
      const { status } = await cluster.post('/v1/completions', { prompt: 'a', max_tokens: 2 })
      return status === 200 ? 'served' : status === 503 ? 'no worker' : String(status)
    }

    it.each([
      ['with the CA of the workers', () => ({ caFile: pairs.worker.certFile }), {}, 'served'],
      ['with another CA', () => ({ caFile: pairs.client.certFile }), {}, 'no worker'],
      ['without a CA', () => undefined, {}, 'no worker'],
      ['without a CA and with insecure: true', () => ({ insecure: true }), {}, 'served'],
      [
        'with the client certificate that the workers require',
        () => ({ caFile: pairs.worker.certFile, ...pairs.client }),
        { requestCert: true },
        'served',
      ],
      [
        'without the client certificate that the workers require',
        () => ({ caFile: pairs.worker.certFile }),
        { requestCert: true },
        'no worker',
      ],
    ])('%s', async (_, tls, { requestCert = false }: { requestCert?: boolean }, wanted) => {
      const cluster = await startWith(
        tls() ?? {},
        requestCert ? { requestCert, rejectUnauthorized: true, ca: readFileSync(pairs.client.certFile) } : {},
      )
      expect(await outcome(cluster)).toBe(wanted)
      await cluster.stop()
    })

    it('keeps a connection usable that was paused within the last bytes of a response', async () => {
      const body = 'a'.repeat(200_000)
      const server = createServer(keysOf(pairs.worker), socket => {
        socket.on('error', () => {})
        socket.on('data', () =>
          socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${body.length}\r\n\r\n${body}`),
        )
      })
      servers.push(server)
      server.listen(0, '127.0.0.1')
      await once(server, 'listening')
      const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`
      const upstreams = new Upstreams({
        connectMs: 5_000,
        idleConnectionMs: 5_000,
        tls: { ca: readFileSync(pairs.worker.certFile) },
      })
      await new Promise<void>((resolve, reject) => {
        const call = upstreams.open(
          url,
          { method: 'GET', path: '/', headers: {} },
          {
            onStart: () => {},
            // TLS delivers what it has decrypted even while paused, so the end may come before the resume.
            onData: () => {
              call.pause()
              setImmediate(() => call.resume())
            },
            onEnd: resolve,
            onFailure: reject,
          },
        )
      })
      const again = await upstreams.ask(
        url,
        { method: 'GET', path: '/', headers: {} },
        { timeoutMs: 5_000, maxBytes: 1_000_000 },
      )
      expect(again.body.length).toBe(body.length)
      upstreams.close()
    })

    it('fails at startup if a file cannot be read', async () => {
      const config = (tls: object) => ({ prefill: 0, decode: 0, config: { workers: { tls } } })
      await expect(startCluster(config({ caFile: 'no-such-file' }))).rejects.toMatchObject({
        code: 'ELDR_FILE_UNREADABLE',
      })
      const wrong = { certFile: pairs.client.certFile, keyFile: pairs.worker.keyFile }
      await expect(startCluster(config(wrong))).rejects.toMatchObject({ code: 'ELDR_CONFIG_INVALID' })
    })

    it('does not accept the certificate of another host', async () => {
      const cluster = await startWith({ caFile: pairs.elsewhere.certFile }, keysOf(pairs.elsewhere))
      expect(await outcome(cluster)).toBe('no worker')
      await cluster.stop()
    })
  })
})

function keysOf({ certFile, keyFile }: { certFile: string; keyFile: string }): { cert: Buffer; key: Buffer } {
  return { cert: readFileSync(certFile), key: readFileSync(keyFile) }
}

function post(
  url: string,
  caFile: string,
  pair?: { certFile: string; keyFile: string },
): Promise<{ status?: number; error?: string }> {
  return new Promise(resolve => {
    const options = {
      method: 'POST',
      ca: readFileSync(caFile),
      agent: false,
      ...(pair === undefined ? {} : keysOf(pair)),
    } as const
    const call = request(`${url}/v1/completions`, options, response =>
      response.resume().on('end', () => resolve({ status: response.statusCode! })),
    )
    call.on('error', (error: NodeJS.ErrnoException) => resolve({ error: error.code ?? error.message }))
    call.end('{"prompt":"a","max_tokens":2}')
  })
}
