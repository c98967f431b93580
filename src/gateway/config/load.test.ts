import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { temporaryFolder } from '../../../test/trace-support.ts'
import type { Environment, FlagValues } from './flags/flag-values.ts'
import { nodeAt } from './schema/json-schema.ts'
import { type LoadOptions, loadSettings } from './load.ts'
import { isObject, partsOf, valueAt } from './paths.ts'
import type { Settings } from './settings.ts'
import { longNameOf, SOURCES } from './flags/sources.ts'

const folder = temporaryFolder()
afterAll(() => folder.remove())

function file(name: string, text: string): string {
  const path = join(folder.path, name)
  writeFileSync(path, text)
  return path
}
const load = async (asked: LoadOptions) => (await loadSettings(asked)).settings
const flags = (values: Record<string, string | readonly string[] | true>): FlagValues =>
  new Map(Object.entries(values))

describe('without any source', () => {
  it('all settings have their defaults', async () => {
    const expected: Settings = {
      server: {
        host: '127.0.0.1',
        port: 8000,
        processes: 1,
        apiKeys: [],
        maxBodyBytes: 32 * 2 ** 20,
        maxHeaderBytes: 16_384,
        headersTimeoutMs: 10_000,
        bodyTimeoutMs: 60_000,
        clientStallMs: 60_000,
        keepAliveMs: 5_000,
        shutdownGraceMs: 30_000,
        replaceGraceMs: 1_800_000,
        replaceReadyMs: 60_000,
      },
      workers: { engine: 'vllm-nixl', prefill: [], decode: [], idleConnectionMs: 4_000 },
      discovery: { removeAfterMs: 30_000, retryMs: 1_000 },
      routing: {
        policy: 'union',
        shadow: [],
        prefillPolicy: 'prefix_hash',
        tau: 0.1,
        stepCost: 'learnt',
        prefixTokens: 256,
        prefixLoadFactor: 1.25,
        minCovered: 0.5,
        refit: 'auto',
        reuseTokenIds: false,
      },
      adapt: {
        mode: 'suggest',
        folder: 'eldr-adapt',
        kept: 8,
        sampleRequests: 1_024,
        halfLifeMs: 300_000,
        minGain: 0.01,
        watchMs: 300_000,
      },
      replicas: {
        namespace: 'eldr',
        publishMs: 5,
        unionMs: 20,
        bytesPerSecond: 8 * 2 ** 20,
        leaseMs: 3_000,
        timeoutMs: 2_000,
        retryMs: 250,
        changesKeptMs: 600_000,
        artifactBytes: 16 * 2 ** 20,
      },
      conversations: { enabled: false, maxEntries: 2_048, keptMs: 300_000, skipPrefillBelowTokens: 0 },
      limits: { maxConcurrentRequests: 4096, queueSize: 1024, queueTimeoutMs: 30_000, maxChoices: 128 },
      timeouts: {
        connectMs: 2_000,
        prefillMs: 120_000,
        firstTokenMs: 60_000,
        betweenTokensMs: 30_000,
        requestMs: 1_800_000,
      },
      retries: { max: 2, budgetShare: 0.2, backoffMs: 50 },
      resume: { enabled: false, maxPerRequest: 3, maxTokens: 32_768, sampled: false },
      lease: { durationMs: 30_000, usableShare: 0.6 },
      breaker: {
        consecutiveFailures: 5,
        windowMs: 30_000,
        windowRequests: 20,
        windowFailureShare: 0.5,
        openMs: 10_000,
      },
      health: { path: '/health', intervalMs: 5_000, timeoutMs: 2_000, failures: 2, successes: 1 },
      observe: {
        logLevel: 'info',
        logFormat: 'auto',
        debugHeaders: false,
        decisionsKept: 256,
        dashboard: 'admin',
        traces: {
          headers: [],
          serviceName: 'eldr',
          sampleRatio: 1,
          batchSpans: 256,
          everyMs: 1_000,
          queueSpans: 8_192,
          timeoutMs: 10_000,
          flushMs: 3_000,
        },
      },
    }
    const { settings, origins } = await loadSettings({})
    expect(settings).toEqual(expected)
    expect(new Set([...origins.values()].map(({ kind }) => kind))).toEqual(new Set(['default']))
  })

  it('the policy is union, also if an artifact is set', async () => {
    expect((await load({ flags: flags({ '--artifact': 'a.safetensors' }) })).routing.policy).toBe('union')
  })
})

/** A text for each flag and variable, other than the default, and the value it sets. */
const keys = file('keys', 'sk-one\n\nsk-two\n')
const token = file('token', 'sk-admin\n')
const SAMPLES: Readonly<Record<string, readonly [string, unknown]>> = {
  ELDR_HOST: ['0.0.0.0', '0.0.0.0'],
  ELDR_PORT: ['9000', 9000],
  ELDR_PROCESSES: ['4', 4],
  ELDR_PREFILL: ['http://p:1', [{ url: 'http://p:1', id: 'p:1' }]],
  ELDR_DECODE: ['one=https://d/', [{ url: 'https://d', id: 'one', cluster: 0 }]],
  ELDR_INTRA_NODE_DATA_PARALLEL_SIZE: ['4', 4],
  ELDR_PREFILL_DATA_PARALLEL_SIZE: ['1', 1],
  ELDR_DECODE_DATA_PARALLEL_SIZE: ['8', 8],
  ELDR_DISCOVERY_FILE: ['workers.yaml', 'workers.yaml'],
  ELDR_DNS_PREFILL: ['http://prefill.llm.svc:8000', 'http://prefill.llm.svc:8000'],
  ELDR_DNS_DECODE: ['srv://_http._tcp.decode.llm.svc', 'srv://_http._tcp.decode.llm.svc'],
  ELDR_DNS_SERVER: ['10.96.0.10:53', '10.96.0.10:53'],
  ELDR_SERVICE_DISCOVERY: ['true', true],
  ELDR_PREFILL_SELECTOR: ['app=vllm', ['app=vllm']],
  ELDR_DECODE_SELECTOR: ['llm-d.ai/role=decode', ['llm-d.ai/role=decode']],
  ELDR_SERVICE_DISCOVERY_PORT: ['8200', 8200],
  ELDR_SERVICE_DISCOVERY_NAMESPACE: ['llm', 'llm'],
  ELDR_SERVICE_DISCOVERY_API_URL: ['http://127.0.0.1:8001', 'http://127.0.0.1:8001'],
  ELDR_POLICY: ['power-of-two', 'power_of_two'],
  ELDR_SHADOW: ['power-of-two', ['power_of_two']],
  ELDR_DECODE_POLICY: ['round_robin', 'round_robin'],
  ELDR_PREFILL_POLICY: ['least-loaded', 'least_loaded'],
  ELDR_ARTIFACT: ['a.safetensors', 'a.safetensors'],
  ELDR_TAU: ['.25', 0.25],
  ELDR_REPLICA_STORE: ['valkey://:pw@10.0.0.9:6379/2', 'valkey://:pw@10.0.0.9:6379/2'],
  ELDR_REPLICA_ID: ['east-1', 'east-1'],
  ELDR_PROFILE: ['h200-first', 'h200-first'],
  ELDR_STEP_COST: ['fixed', 'fixed'],
  ELDR_ADAPT: ['on', 'on'],
  ELDR_ADAPT_FOLDER: ['swaps', 'swaps'],
  ELDR_PREFIX_TOKEN_COUNT: ['128', 128],
  ELDR_PREFIX_HASH_LOAD_FACTOR: ['2', 2],
  ELDR_REQUEST_TIMEOUT_SECS: ['1.1', 1100],
  ELDR_SHUTDOWN_GRACE_PERIOD_SECS: ['180', 180_000],
  ELDR_MAX_CONCURRENT_REQUESTS: ['-1', 0],
  ELDR_QUEUE_SIZE: ['100', 100],
  ELDR_QUEUE_TIMEOUT_SECS: ['60', 60_000],
  ELDR_MAX_PAYLOAD_SIZE: ['1048576', 1_048_576],
  ELDR_RETRY_MAX_RETRIES: ['5', 5],
  ELDR_RETRY_INITIAL_BACKOFF_MS: ['10', 10],
  ELDR_DISABLE_RETRIES: ['true', 0],
  ELDR_RESUME: ['true', true],
  ELDR_CB_FAILURE_THRESHOLD: ['10', 10],
  ELDR_CB_TIMEOUT_DURATION_SECS: ['60', 60_000],
  ELDR_CB_WINDOW_DURATION_SECS: ['120', 120_000],
  ELDR_HEALTH_CHECK_ENDPOINT: ['/healthz', '/healthz'],
  ELDR_HEALTH_CHECK_INTERVAL_SECS: ['60', 60_000],
  ELDR_HEALTH_CHECK_TIMEOUT_SECS: ['0.5', 500],
  ELDR_HEALTH_FAILURE_THRESHOLD: ['3', 3],
  ELDR_HEALTH_SUCCESS_THRESHOLD: ['2', 2],
  ELDR_PROMETHEUS_PORT: ['29000', 29_000],
  ELDR_LOG_LEVEL: ['debug', 'debug'],
  ELDR_JSON_LOG: ['1', 'json'],
  ELDR_API_KEY_FILE: [keys, ['sk-one', 'sk-two']],
  ELDR_ADMIN_TOKEN_FILE: [token, 'sk-admin'],
  ELDR_TLS_CERT_PATH: ['cert.pem', 'cert.pem'],
  ELDR_TLS_KEY_PATH: ['key.pem', 'key.pem'],
  ELDR_CA_CERT_PATH: ['ca.pem', 'ca.pem'],
  ELDR_CLIENT_CERT_PATH: ['client.pem', 'client.pem'],
  ELDR_CLIENT_KEY_PATH: ['client-key.pem', 'client-key.pem'],
  ELDR_DASHBOARD: ['open', 'open'],
  ELDR_DEBUG_HEADERS: ['true', true],
  ELDR_OTLP_ENDPOINT: ['http://c:4318', 'http://c:4318'],
  ELDR_TRACE_SAMPLE_RATIO: ['0.01', 0.01],
  OTEL_EXPORTER_OTLP_ENDPOINT: ['https://c/otlp/', 'https://c/otlp/'],
  OTEL_EXPORTER_OTLP_HEADERS: [
    'authorization=Bearer%20x%2C, x-scope=1',
    ['authorization=Bearer x,', 'x-scope=1'],
  ],
  OTEL_SERVICE_NAME: ['front door', 'front door'],
  ELDR_API_KEYS: ['sk-a, sk-b', ['sk-a', 'sk-b']],
  ELDR_ADMIN_TOKEN: ['sk-c', 'sk-c'],
  ELDR_WORKER_API_KEY: ['sk-d', 'sk-d'],
}
/**
 * A certificate needs its key, a key its certificate, and a name in DNS to be asked for needs to be there.
 */
const PARTNERS: Readonly<Record<string, readonly string[]>> = {
  ELDR_DNS_SERVER: ['ELDR_DNS_DECODE'],
  ELDR_SERVICE_DISCOVERY: ['ELDR_PREFILL_SELECTOR', 'ELDR_DECODE_SELECTOR'],
  ELDR_TLS_CERT_PATH: ['ELDR_TLS_KEY_PATH'],
  ELDR_TLS_KEY_PATH: ['ELDR_TLS_CERT_PATH'],
  ELDR_CLIENT_CERT_PATH: ['ELDR_CLIENT_KEY_PATH'],
  ELDR_CLIENT_KEY_PATH: ['ELDR_CLIENT_CERT_PATH'],
}

describe('every flag and every variable', () => {
  it.each(SOURCES.map(source => [source.env, source] as const))(
    '%s changes its setting',
    async (env, source) => {
      const [text, value] = SAMPLES[env]!
      const beside: Environment = Object.fromEntries(
        (PARTNERS[env] ?? []).map(partner => [partner, SAMPLES[partner]![0]]),
      )
      expect(valueAt(await load({}), partsOf(source.name))).not.toEqual(value)
      const byEnvironment = await loadSettings({ env: { [env]: text, ...beside } })
      expect(valueAt(byEnvironment.settings, partsOf(source.name))).toEqual(value)
      expect(byEnvironment.origins.get(source.name)).toEqual({ kind: 'environment', name: env })
      if (source.flag === undefined) return
      const flag = longNameOf(source.flag)
      const typed = source.flag.includes('...') ? [text] : source.flag.includes('<') ? text : true
      const byFlag = await loadSettings({ flags: new Map([[flag, typed]]), env: beside })
      expect(valueAt(byFlag.settings, partsOf(source.name))).toEqual(value)
      expect(byFlag.origins.get(source.name)).toEqual({ kind: 'flag', name: flag })
    },
  )

  it('documents the default of the schema', () => {
    const said = SOURCES.flatMap(({ help, name, flag = '' }) => {
      const text = /\(default: (?!random\))([\w./]+)\)$/.exec(help)?.[1]
      return text === undefined ? [] : [{ flag, name, text }]
    })
    expect(said.length).toBeGreaterThan(20)
    for (const { flag, name, text } of said) {
      const { default: real } = nodeAt(partsOf(name))!
      expect(`${flag} ${text}`).toBe(
        `${flag} ${flag.includes('-secs ') ? Number(real) / 1000 : String(real)}`,
      )
    }
  })

  it('has a unique name', () => {
    const names = SOURCES.flatMap(({ flag, env }) => [env, ...(flag === undefined ? [] : [longNameOf(flag)])])
    expect(new Set(names).size).toBe(names.length)
  })
})

describe('the origin of a value', () => {
  const config = file('some.yaml', 'server:\n  port: 1\n  host: a\nrouting:\n  tau: 0.3\nhealth:\n')

  it('is the flag, else the environment, else the file, else the default', async () => {
    const env = { ELDR_PORT: '2', ELDR_HOST: 'b', ELDR_CONFIG: 'nowhere.yaml' }
    const { settings, origins } = await loadSettings({
      flags: flags({ '--port': '3', '--config': config }),
      env,
    })
    expect([settings.server.port, settings.server.host, settings.routing.tau, settings.retries.max]).toEqual([
      3,
      'b',
      0.3,
      2,
    ])
    expect(
      ['server.port', 'server.host', 'routing.tau', 'retries.max'].map(name => origins.get(name)!.name),
    ).toEqual(['--port', 'ELDR_HOST', `${config}:5:8`, 'default'])
  })

  it('is known for every value', async () => {
    const { settings, origins } = await loadSettings({ file: config })
    for (const [section, values] of Object.entries(settings) as [string, object][])
      for (const [key, value] of Object.entries(values) as [string, unknown][]) {
        const names = isObject(value)
          ? Object.keys(value).map(inner => `${section}.${key}.${inner}`)
          : [`${section}.${key}`]
        for (const name of names) expect(origins.has(name)).toBe(true)
      }
  })

  it('may be a JSON file with tabs and a $schema key', async () => {
    const json = file('some.json', '{\n\t"$schema": "x",\n\t"server": {\n\t\t"port": 7\n\t}\n}\n')
    const { settings, origins } = await loadSettings({ env: { ELDR_CONFIG: json } })
    expect(settings.server.port).toBe(7)
    expect(origins.get('server.port')!.name).toBe(`${json}:4:11`)
    expect(settings).not.toHaveProperty('$schema')
  })

  it('is the file if a switch is off, unless off is a value', async () => {
    const off = file('on.yaml', 'retries: {max: 1}\nobserve: {debugHeaders: true, logFormat: pretty}\n')
    const env = { ELDR_DISABLE_RETRIES: 'false', ELDR_JSON_LOG: '0', ELDR_DEBUG_HEADERS: 'false' }
    const { retries, observe } = await load({ file: off, env })
    expect([retries.max, observe.logFormat, observe.debugHeaders]).toEqual([1, 'pretty', false])
  })

  it('is the default for an empty file', async () => {
    expect(await load({ file: file('empty.yaml', '# nothing\n') })).toEqual(await load({}))
  })
})

describe('OpenTelemetry variables', () => {
  it('have lower precedence than ELDR_ variables, and are ignored if empty', async () => {
    const env = {
      OTEL_EXPORTER_OTLP_ENDPOINT: 'http://theirs:4318',
      ELDR_OTLP_ENDPOINT: 'http://ours:4318',
      OTEL_SERVICE_NAME: '',
    }
    const { traces } = (await load({ env })).observe
    expect([traces.endpoint, traces.serviceName]).toEqual(['http://ours:4318', 'eldr'])
  })

  it('cause a warning if they are unlikely to work', async () => {
    const warningsOf = async (env: Environment) =>
      (await loadSettings({ env })).warnings.filter(text => text.includes('traces'))
    expect(await warningsOf({ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c:4317' })).toEqual([
      'OTEL_EXPORTER_OTLP_ENDPOINT: observe.traces.endpoint: port 4317 is for gRPC; OTLP over HTTP uses 4318',
    ])
    expect(await warningsOf({ OTEL_EXPORTER_OTLP_HEADERS: 'a=b' })).toEqual([
      'OTEL_EXPORTER_OTLP_HEADERS: observe.traces.headers without observe.traces.endpoint: nothing is sent',
    ])
    expect(await warningsOf({ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c:4318' })).toEqual([])
  })
})

describe('workers', () => {
  it('may be URLs or objects, keep their cluster, and are named by their address by default', async () => {
    const config = file(
      'w.yaml',
      'workers:\n  decode:\n    - {url: "http://[::1]:8000/", cluster: 3}\n    - {url: HTTP://B, id: b, cluster: 0}\n',
    )
    expect((await load({ file: config })).workers.decode).toEqual([
      { url: 'http://[::1]:8000', id: '[::1]:8000', cluster: 3 },
      { url: 'http://b', id: 'b', cluster: 0 },
    ])
  })

  it('from flags replace those of the file', async () => {
    const config = file('p.yaml', 'workers: {prefill: [http://a:1, http://b:1]}\n')
    const { workers } = await load({
      file: config,
      flags: flags({ '--prefill': ['http://c:1', 'http://d:1'] }),
    })
    expect(workers.prefill.map(({ url }) => url)).toEqual(['http://c:1', 'http://d:1'])
  })
})
