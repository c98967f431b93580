import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import * as fc from 'fast-check'
import { afterAll, describe, expect, it } from 'vitest'
import { failure, temporaryFolder } from '../../../test/trace-support.ts'
import { EldrError } from '../../errors.ts'
import { allKeys } from './schema/json-schema.ts'
import { type LoadOptions, loadSettings } from './load.ts'
import { nearest } from './flags/nearest.ts'
import { leavesOf, putAt } from './paths.ts'

const folder = temporaryFolder()
afterAll(() => folder.remove())
const path = join(folder.path, 'eldr.yaml')

/** Problems of a file, without its name. */
async function problems(text: string, asked: LoadOptions = {}): Promise<readonly string[]> {
  writeFileSync(path, text)
  const { code, detail } = await failure(path, () => loadSettings({ file: path, ...asked }))
  expect(code).toBe('ELDR_CONFIG_INVALID')
  expect(detail.found).toBe(`${detail.problems!.length} problem${detail.problems!.length === 1 ? '' : 's'}`)
  return detail.problems!.map(line => line.replace(`${path}:`, ''))
}
/** Warnings for a configuration with workers, to which `more` is added. */
async function warnings(more: string, env = {}): Promise<readonly string[]> {
  writeFileSync(path, `workers: {prefill: [http://p:1], decode: [http://d:1], ${more}}`)
  return (await loadSettings({ file: path, env })).warnings.map(line => line.replace(`${path}:`, ''))
}
const POLICIES = 'random, round_robin, jsq, power_of_two, domain, band, eldr, union'

describe('an invalid configuration', () => {
  it.each([
    ['routing: {polcy: eldr}', '1:11: unknown key routing.polcy: did you mean routing.policy?'],
    ['port: 80', '1:1: unknown key port: did you mean server.port?'],
    [
      'server: {max_body_bytes: 80}',
      '1:10: unknown key server.max_body_bytes: did you mean server.maxBodyBytes?',
    ],
    [
      'limits: {max-payload-size: 80}',
      '1:10: unknown key limits.max-payload-size: did you mean server.maxBodyBytes?',
    ],
    ['__proto__: {port: 80}', '1:1: unknown key __proto__'],
    ['xyzzyx: 1', '1:1: unknown key xyzzyx'],
    ['server: {port: eighty}', '1:16: server.port: expected a whole number from 0 to 65535, found "eighty"'],
    ['server: {port: 70000}', '1:16: server.port: expected a whole number from 0 to 65535, found 70000'],
    ['server: {port:}', '1:15: server.port: expected a whole number from 0 to 65535, found nothing'],
    [
      'server: [1]',
      '1:9: server: expected an object with host, port, processes, metricsPort, tls, apiKeys, adminToken, maxBodyBytes, maxHeaderBytes, headersTimeoutMs, bodyTimeoutMs, clientStallMs, keepAliveMs, shutdownGraceMs, replaceGraceMs, replaceReadyMs, found a list',
    ],
    [
      '- a',
      '1:1: the file: expected an object with $schema, server, workers, discovery, routing, conversations, adapt, replicas, limits, timeouts, retries, resume, lease, breaker, health, observe, found a list',
    ],
    ['lease: {usableShare: 0}', '1:22: lease.usableShare: expected a number above 0, at most 1, found 0'],
    ['routing: {policy: power}', `1:19: routing.policy: expected one of ${POLICIES}, found "power"`],
    ['observe: {debugHeaders: yes}', '1:25: observe.debugHeaders: expected true or false, found "yes"'],
    ['workers: {engine: sglang}', '1:19: workers.engine: expected vllm-nixl, found "sglang"'],
    [
      'health: {path: health}',
      '1:16: health.path: expected a path that begins with /, such as /health, found "health"',
    ],
    ['server: {host: ""}', '1:16: server.host: expected an address or a host name, found ""'],
    [
      'server: {tls: {keyFile: k}}',
      '1:15: server.tls.certFile is missing: expected the path of a PEM file with the certificate',
    ],
    ['workers: {tls: {keyFile: k}}', '1:26: workers.tls.keyFile without workers.tls.certFile: set both'],
    ['workers: {tls: {certFile: k}}', '1:27: workers.tls.certFile without workers.tls.keyFile: set both'],
    [
      'routing: {policy: eldr}',
      '1:19: routing.policy: eldr needs an artifact: set routing.artifact (--artifact)',
    ],
    [
      'routing: {policy: domain}',
      '1:19: routing.policy: domain needs an artifact: set routing.artifact (--artifact)',
    ],
    [
      'server: {adminToken: a, apiKeys: [b, a]}',
      '1:22: server.adminToken is one of server.apiKeys: any client could use the admin API',
    ],
    [
      'server: {port: 8001, metricsPort: 8001}',
      '1:35: server.metricsPort is server.port, 8001: choose another port',
    ],
    [
      'server: {headersTimeoutMs: 70000}',
      '1:28: server.headersTimeoutMs 70000 is more than server.bodyTimeoutMs 60000, which includes it',
    ],
  ])('is reported: %s', async (text, expected) => {
    expect(await problems(text)).toEqual([expected])
  })

  it.each([
    ['[http://a:1/v1]', '1:20: workers.decode[0]: expected no path, only http://a:1'],
    ['[{url: "http://a:1?x"}]', '1:26: workers.decode[0].url: expected no path, only http://a:1'],
    [
      '["http://me:sesame@a:1"]',
      '1:20: workers.decode[0]: expected no user or password in the URL: if workers need a key, set workers.apiKey or ELDR_WORKER_API_KEY',
    ],
    [
      '[grpc://a:1]',
      '1:20: workers.decode[0]: expected an http or https URL such as http://10.0.0.7:8000, found the scheme grpc',
    ],
    [
      '["a:1"]',
      '1:20: workers.decode[0]: expected http:// or https:// at the start: did you mean http://a:1?',
    ],
    [
      '["[::1]:1"]',
      '1:20: workers.decode[0]: expected http:// or https:// at the start: did you mean http://[::1]:1?',
    ],
    ['[a b]', '1:20: workers.decode[0]: expected an http or https URL such as http://10.0.0.7:8000'],
    [
      '[7]',
      '1:20: workers.decode[0]: expected a URL, or an object with url, id, dpRank, ranks, cluster, found 7',
    ],
    ['[{id: a}]', '1:20: workers.decode[0].url is missing: expected a URL such as http://10.0.0.7:8000'],
    [
      '[{url: http://a:1, clutser: 0}]',
      '1:38: unknown key workers.decode[0].clutser: did you mean workers.decode[0].cluster?',
    ],
    [
      '[{url: http://a:1, id: a/b}]',
      '1:42: workers.decode[0].id: expected 1 to 128 letters, digits or any of . : @ _ [ ] -, found "a/b"',
    ],
    [
      '[http://a:1, http://A:1/]',
      '1:32: two workers with the url http://a:1: workers.decode[0] and workers.decode[1]',
    ],
    [
      '[{url: http://a:1, id: b:1}, http://b:1]',
      '1:48: two workers with the id b:1: workers.decode[0] and workers.decode[1]',
    ],
    [
      '[{url: http://a:1, cluster: 0}, {url: http://b:1, cluster: 0}]',
      '1:51: cluster 0 is used twice: workers.decode[0] and workers.decode[1]',
    ],
    [
      '[{url: http://a:1, cluster: 0}, http://b:1]',
      '1:51: workers.decode[1] has no cluster but others do: set it for all decode workers or for none',
    ],
  ])('has its worker problems reported: %s', async (workers, expected) => {
    expect(await problems(`workers: {decode: ${workers}}`)).toEqual([expected])
  })

  it.each([
    [
      '{endpoint: collector:4318}',
      '1:30: observe.traces.endpoint: expected http:// or https:// at the start: did you mean http://collector:4318?',
    ],
    [
      '{endpoint: "http://me:sesame@c"}',
      '1:30: observe.traces.endpoint: expected no user or password in the URL: if the collector needs them, set observe.traces.headers or OTEL_EXPORTER_OTLP_HEADERS',
    ],
    [
      '{endpoint: "http://c/?key=sesame"}',
      '1:30: observe.traces.endpoint: expected nothing after the path of the URL',
    ],
    ['{sampleRatio: 2}', '1:33: observe.traces.sampleRatio: expected a number from 0 to 1, found 2'],
    [
      '{headers: [sesame]}',
      '1:30: observe.traces.headers[0]: expected NAME=VALUE, such as authorization=Bearer KEY, found an invalid value',
    ],
  ])('has its trace problems reported without secrets: %s', async (traces, expected) => {
    expect(await problems(`observe: {traces: ${traces}}`)).toEqual([expected])
  })

  it('has the same worker in both roles', async () => {
    expect(await problems('workers: {prefill: [http://a:1], decode: [http://a:1]}')).toEqual([
      '1:43: two workers with the url http://a:1: workers.prefill[0] and workers.decode[0]',
    ])
  })

  it('has all problems reported at once, in the order of the file', async () => {
    const text =
      'observe: {logLevel: loud}\nrouting:\n  tau: x\n  policy: eldr\nworkers:\n  decode: [http://a:1, b, http://a:1]\nlimits: {queue: 1}\n'
    expect((await problems(text)).map(line => line.split(' ').slice(0, 3).join(' '))).toEqual([
      '1:21: observe.logLevel: expected',
      '3:8: routing.tau: expected',
      '4:11: routing.policy: eldr',
      '6:24: workers.decode[1]: expected',
      '6:27: two workers',
      '7:10: unknown key',
    ])
  })

  it('has no cross-checks on values that are invalid by themselves', async () => {
    expect(await problems('routing: {policy: eldr, artifact: 7}')).toEqual([
      '1:35: routing.artifact: expected the path of an artifact of `eldr fit`, found 7',
    ])
  })

  it('has problems of flags and variables reported with their names and units', async () => {
    const flags = new Map([
      ['--queue-timeout-secs', 'soon'],
      ['--tls-key-path', 'k'],
      ['--policy', 'a'],
      ['--decode-policy', 'b'],
    ])
    expect(
      await problems('', {
        flags,
        env: { ELDR_TAU: '3', ELDR_JSON_LOG: 'maybe', ELDR_API_KEY_FILE: 'no/where' },
      }),
    ).toEqual([
      '--decode-policy: sets routing.policy, which --policy sets too: set only one of them',
      'ELDR_JSON_LOG: expected true or false, found "maybe"',
      'ELDR_API_KEY_FILE: cannot read "no/where": ENOENT',
      '--policy: routing.policy: expected one of random, round_robin, jsq, power_of_two, domain, band, eldr, union, found "a"',
      '--queue-timeout-secs: limits.queueTimeoutMs: expected a number of seconds from 0.001 to 86400, found "soon"',
      '--tls-key-path: server.tls.certFile is missing: expected the path of a PEM file with the certificate',
      'ELDR_TAU: routing.tau: expected a number from 0 to 2, found "3"',
    ])
  })

  it.each([
    ['server: {port: 1\n', /^2:1: Flow map .* \}$/],
    ['server:\n  port: 1\n  port: 2\n', /^3:3: Map keys must be unique$/],
    ['server:\n\tport: 1\n', /^2:1: Tabs are not allowed as indentation$/],
    ['a: 1\n---\nb: 2\n', /^2:1: Source contains multiple documents$/],
    ['server: !env PORT\n', /^1:9: Unresolved tag$/],
  ])('has YAML syntax errors reported: %j', async (text, expected) => {
    expect((await problems(text))[0]).toMatch(expected)
  })
})

describe('any file', () => {
  const keys = allKeys().map(({ name }) => name.split(/[.[]/).filter(part => part !== ']'))
  const entry = fc.tuple(
    fc.constantFrom(...keys),
    fc.oneof(fc.jsonValue({ maxDepth: 3 }), fc.nat(70_000), fc.constantFrom('eldr', 'a:1')),
  )

  it('gives settings or a list of problems, never an internal error', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(entry, { maxLength: 6 }), async entries => {
        const value = {}
        for (const [key, each] of entries) putAt(value, key, each)
        writeFileSync(path, JSON.stringify(value))
        const said = await loadSettings({ file: path }).catch((error: unknown) => error)
        const lines =
          said instanceof EldrError
            ? said.detail.problems!
            : leavesOf((said as { settings: object }).settings)
        expect(lines.length).toBeGreaterThan(0)
      }),
      { numRuns: 500 },
    )
  })
})

describe('a secret', () => {
  it.each([
    'server: {adminToken: 5318008}',
    'server: {adminToken: "53 18008"}',
    'server: {apiKeys: 5318008}',
    'server: {apiKeys: ["5318008\\n"]}',
    'server: {apiKeys: {a: 5318008}}',
    'server: {adminToken: *s5318008}',
    'server: {adminToken: !5318008 x}',
    'server: {adminToken: "********"}',
    'workers: {prefill: ["http://me:5318008@a:1"]}',
  ])('is not repeated in an error: %s', async text => {
    const said = await problems(text)
    expect(said.length).toBeGreaterThan(0)
    expect(said.join()).not.toContain('18008')
  })

  it('comes from a file with exactly one line', async () => {
    writeFileSync(join(folder.path, 'two'), 'a\nb\n')
    writeFileSync(join(folder.path, 'none'), '\n')
    const env = {
      ELDR_ADMIN_TOKEN_FILE: join(folder.path, 'two'),
      ELDR_API_KEY_FILE: join(folder.path, 'none'),
    }
    expect((await problems('', { env })).map(line => line.replaceAll(folder.path, ''))).toEqual([
      'ELDR_API_KEY_FILE: no key in "/none": expected one per line',
      'ELDR_ADMIN_TOKEN_FILE: expected one line in "/two", found 2',
    ])
  })

  it('that is empty is refused and does not disable authentication', async () => {
    expect(await problems('', { env: { ELDR_API_KEYS: '' } })).toEqual([
      'ELDR_API_KEYS: server.apiKeys[0]: expected a key of visible ASCII characters without spaces, found an invalid value',
    ])
    expect(await problems('server: {apiKeys:}')).toHaveLength(1)
  })
})

describe('a warning', () => {
  it('is given for an idle timeout longer than that of uvicorn', async () => {
    expect(await warnings('idleConnectionMs: 5000')).toEqual([
      '1:74: workers.idleConnectionMs 5000: uvicorn closes idle connections after 5000, and a request sent at that moment fails',
    ])
    expect(await warnings('idleConnectionMs: 4999')).toEqual([])
  })

  it('is given for missing workers and for disabled certificate checks', async () => {
    writeFileSync(path, 'workers: {prefill: [http://p:1], tls: {insecure: true}}')
    expect((await loadSettings({ file: path })).warnings.map(line => line.replace(`${path}:`, ''))).toEqual([
      '1:50: workers.tls.insecure: certificates of workers are not checked',
      'no decode workers: set workers.decode (--decode)',
    ])
  })

  it('is given for a misspelt variable and for the one that Kubernetes sets for a service', async () => {
    const env = {
      ELDR_POLCY: 'x',
      ELDR_PORT: 'tcp://10.0.0.1:8000',
      ELDR_PORT_8000_TCP_ADDR: '10.0.0.1',
      ELDR_SERVICE_HOST: '10.0.0.1',
    }
    const said = await warnings('', env)
    expect(said).toHaveLength(2)
    expect(said[0]).toMatch(/^ELDR_PORT is ignored: .*enableServiceLinks/)
    expect(said[1]).toBe('ELDR_POLCY is ignored: did you mean ELDR_POLICY?')
    expect((await loadSettings({ env })).settings.server.port).toBe(8000)
  })
})

describe('the nearest name', () => {
  it.each([
    ['polcy', 'policy'],
    ['prot', 'port'],
    ['MAX_BODY_BYTES', 'maxBodyBytes'],
    ['zebra', undefined],
  ])('of %s is %s', (wrong, expected) => {
    expect(nearest(wrong, ['port', 'policy', 'maxBodyBytes'])).toBe(expected)
  })
})
