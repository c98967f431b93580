/** The OpenAPI document against the routing tables. */
import { readFileSync } from 'node:fs'
import { afterEach, describe, expect, it } from 'vitest'
import { REFUSALS } from '../../src/gateway/http/refusal.ts'
import { FILES } from '../../src/gateway/control/dashboard/page-files.ts'
import { apiPage, documentText } from '../../src/gateway/control/openapi/api-page.ts'
import { openApiDocument, WHOLE } from '../../src/gateway/control/openapi/document.ts'
import { GENERATE, OWN, PASSED } from '../../src/gateway/http/routes.ts'
import { call, errorOf } from './admin-support.ts'
import { type Cluster, type ClusterOptions, startCluster } from './cluster.ts'
import { Conformance, inDocument } from './openapi-support.ts'
import { RawClient } from './raw-socket.ts'
import { freePort } from '../free-port.ts'

/** An address where no server listens. */
const whole = new Conformance(JSON.parse(JSON.stringify(openApiDocument(WHOLE))))

describe('the document', () => {
  it('matches the one in docs/: run `npm run build && npm run docs` if it does not', () => {
    const page = (name: string) => readFileSync(new URL(`../../docs/${name}`, import.meta.url), 'utf8')
    expect(page('openapi.json')).toBe(documentText())
    expect(page('reference/api.md')).toBe(apiPage())
  })

  it('has a unique id, a summary, one known tag and a success for every operation', () => {
    const ids = whole.operations.map(({ operation }) => operation.operationId)
    expect(new Set(ids).size).toBe(ids.length)
    const tags = whole.document.tags.map(({ name }: { name: string }) => name)
    for (const { operation } of whole.operations) {
      expect(operation.operationId).toMatch(/^[a-z][A-Za-z]+$/)
      expect(operation.summary).toMatch(/^[A-Z].*[^.]$/)
      expect(tags).toContain(operation.tags[0])
      expect(Object.keys(operation.responses).some(status => Number(status) < 400)).toBe(true)
    }
  })

  it('has examples that match its schemas, and links that resolve', () => {
    let examples = 0
    const look = (node: unknown): void => {
      if (typeof node !== 'object' || node === null) return
      const media = node as {
        schema?: object
        example?: unknown
        examples?: Record<string, { value: unknown }>
        operationId?: string
      }
      const values = [media.example, ...Object.values(media.examples ?? {}).map(({ value }) => value)].filter(
        value => value !== undefined,
      )
      for (const value of media.schema === undefined ? [] : values) {
        examples++
        expect(whole.wrongWith(inDocument(media.schema), value), JSON.stringify(value)).toBeUndefined()
      }
      Object.values(node).forEach(look)
    }
    look(whole.document.paths)
    look(whole.document.components.responses)
    expect(examples).toBeGreaterThan(40)
    const ids = whole.operations.map(({ operation }) => operation.operationId)
    const links = [...JSON.stringify(whole.document).matchAll(/"links":(\{.*?\}\})/g)].flatMap(([, text]) =>
      Object.values(JSON.parse(text!) as Record<string, { operationId: string }>),
    )
    expect(links.length).toBeGreaterThan(4)
    for (const { operationId } of links) expect(ids).toContain(operationId)
  })

  it('names every error response of the gateway, except 405', () => {
    const named = new Set(JSON.stringify(whole.document.components.responses).match(/ELDR_[A-Z_]+(?=:)/g))
    const forbidden = JSON.stringify(openApiDocument({ ...WHOLE, adminToken: false })).includes(
      'ELDR_FORBIDDEN:',
    )
    expect(forbidden).toBe(true)
    expect([...named, 'ELDR_METHOD', 'ELDR_FORBIDDEN'].toSorted()).toEqual(Object.keys(REFUSALS).toSorted())
  })
})

describe('a gateway', () => {
  let cluster: Cluster
  const start = async (config: ClusterOptions['config'] = {}) =>
    void (cluster = await startCluster({ prefill: 1, decode: 1, config }))
  afterEach(() => cluster.stop())

  /** From the routing tables. */
  const routes = () => [
    ...Object.keys(GENERATE).map(path => `POST ${path}`),
    ...Object.entries(PASSED).flatMap(([path, allow]) =>
      allow
        .replace(', HEAD', '')
        .split(', ')
        .map(method => `${method} ${path}`),
    ),
    'GET /v1/{path}',
    'POST /v1/{path}',
    ...Object.keys(OWN).map(path => `GET ${path}`),
    ...[...Object.keys(FILES), '/dashboard/'].map(path => `GET ${path}`),
    ...cluster.gateway.routes.map(({ method, path }) => `${method} ${path}`),
  ]
  const documented = async () =>
    (await Conformance.of(cluster.url)).operations.map(({ method, path }) => `${method} ${path}`)

  it('serves its document, with exactly its routes', async () => {
    await start({ server: { adminToken: 'sesame', apiKeys: ['client'] } })
    const response = await fetch(`${cluster.url}/openapi.json`)
    expect(response.headers.get('content-type')).toBe('application/json')
    // A single process has no owner that could be away.
    expect(await response.json()).toEqual(
      JSON.parse(JSON.stringify(openApiDocument({ ...WHOLE, processes: false }))),
    )
    expect((await documented()).toSorted()).toEqual(routes().toSorted())
  })

  it('leaves out disabled features, and requires a key only if one is configured', async () => {
    const metricsPort = await freePort()
    await start({ server: { metricsPort }, observe: { dashboard: 'off' } })
    const without = routes().filter(route => route !== 'GET /metrics' && !route.startsWith('GET /dashboard'))
    expect((await documented()).toSorted()).toEqual(without.toSorted())
    const { operations } = await Conformance.of(cluster.url)
    expect(operations.filter(({ operation }) => operation.security.length > 0)).toEqual([])
    const elsewhere = await fetch(`http://127.0.0.1:${metricsPort}/metrics`, { method: 'POST' })
    expect([elsewhere.status, elsewhere.headers.get('allow')]).toEqual([405, 'GET, HEAD'])
    expect(
      operations.every(({ path, operation }) => '403' in operation.responses === path.startsWith('/eldr/')),
    ).toBe(true)
  })

  it('with an open dashboard requires the token for changes and for worker URLs', async () => {
    await start({ server: { adminToken: 'sesame' }, observe: { dashboard: 'open' } })
    const { operations } = await Conformance.of(cluster.url)
    const open = operations.filter(
      ({ path, operation }) => path.startsWith('/eldr/') && operation.security.length === 0,
    )
    expect(open.map(({ path }) => path).toSorted()).toEqual([
      '/eldr/adapt',
      '/eldr/dashboard',
      '/eldr/experiment',
      '/eldr/experts',
      '/eldr/plane',
      '/eldr/pulse',
      '/eldr/requests/{id}',
      '/eldr/shadow',
    ])
    expect(open.every(({ method }) => method === 'GET')).toBe(true)
    for (const { path } of open) {
      const raw = new RawClient(cluster.url).send(
        `DELETE ${path.replace('{id}', 'x')} HTTP/1.1\r\nHost: a\r\n\r\n`,
      )
      const allow = path === '/eldr/experiment' ? 'GET, HEAD, POST' : 'GET, HEAD'
      expect([(await raw.answer()).status, (await raw.answer()).headers['allow']]).toEqual([405, allow])
      raw.leave()
    }
    expect(errorOf(await call(cluster, 'POST', '/eldr/experiment', { policies: ['jsq'] }))).toBe(
      '401 ELDR_UNAUTHORIZED',
    )
  })

  it('responds to other methods with 405 and the documented methods in Allow', async () => {
    await start()
    const { document } = await Conformance.of(cluster.url)
    for (const [path, methods] of Object.entries<object>(document.paths)) {
      const allowed = Object.keys(methods).flatMap(method =>
        method === 'get' ? ['GET', 'HEAD'] : [method.toUpperCase()],
      )
      for (const method of [
        'GET',
        'HEAD',
        'POST',
        'PUT',
        'DELETE',
        'PATCH',
        'OPTIONS',
        'TRACE',
        'QUERY',
        'PROPFIND',
      ]) {
        if (allowed.includes(method)) continue
        const raw = new RawClient(cluster.url).send(
          `${method} ${path.replace(/\{\w+\}/, 'x')} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`,
        )
        const { status, headers } = await raw.answer(method)
        expect([method, path, status, headers['allow']?.split(', ').toSorted()]).toEqual([
          method,
          path,
          405,
          allowed.toSorted(),
        ])
        raw.leave()
      }
    }
  })

  it('accepts HEAD wherever it accepts GET: the same headers and no body', async () => {
    await start()
    const { operations } = await Conformance.of(cluster.url)
    const heads = operations.filter(({ method, path }) => method === 'GET' && !path.includes('{'))
    expect(heads.length).toBeGreaterThan(15)
    for (const { path } of heads) {
      const raw = new RawClient(cluster.url).send(
        `HEAD ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n`,
      )
      const { status } = await raw.answer('HEAD')
      expect([path, status]).toEqual([path, path === '/dashboard/' ? 308 : 200])
      while (!raw.ended) await new Promise(resolve => raw.socket.once('end', resolve))
      expect(raw.text.slice(raw.text.indexOf('\r\n\r\n') + 4)).toBe('')
    }
  })
})
