/**
 * Table of all flags and environment variables with the setting each one sets. `eldr serve --help`, the
 * reference page and the parsing of the command line use it, and a test checks that every flag has an effect.
 * Names are those of vllm-router and sglang-router if they have one. It imports no package, so that help is
 * fast.
 */
import { DEFAULT_PREFILL_POLICY, PREFILL_POLICIES } from '../../../policy/prefill-policy.ts'
import { DEFAULT_POLICY, POLICIES } from '../../../policy/decode-policy.ts'
import type { SettingName } from '../paths.ts'
import {
  flagSwitch,
  headerList,
  keysIn,
  list,
  number,
  onlyLineOf,
  orNoLimit,
  type Reader,
  seconds,
  text,
  workerIn,
  workerList,
} from './readers.ts'

export interface Source {
  /** In commander's syntax, such as `--port <n>`; undefined for settings without a flag. */
  readonly flag?: string
  readonly env: string
  readonly name: SettingName
  readonly read: Reader
  /** Parses each value of a repeatable flag. */
  readonly each?: (text: string) => unknown
  /** A variable shared with other programs: an ELDR_ variable for the same setting takes precedence. */
  readonly yields?: true
  readonly help: string
}

const flag = (flag: string, name: SettingName, read: Reader, help: string): Source => ({
  flag,
  env: envOf(flag),
  name,
  read,
  help,
})

export const SOURCES: readonly Source[] = [
  flag(
    '--host <address>',
    'server.host',
    text,
    'address to listen on; use 0.0.0.0 in a container (default: 127.0.0.1)',
  ),
  flag('--port <n>', 'server.port', number, 'port to listen on; 0: any free port (default: 8000)'),
  flag(
    '--processes <n>',
    'server.processes',
    number,
    'number of processes that relay requests; with two or more, another process makes all decisions (default: 1)',
  ),
  {
    ...flag(
      '--prefill <url...>',
      'workers.prefill',
      workerList,
      'prefill worker: URL such as http://10.0.0.7:8000, or NAME=URL; URL@2 is its data-parallel rank 2; may be repeated',
    ),
    each: workerIn,
  },
  {
    ...flag('--decode <url...>', 'workers.decode', workerList, 'decode worker; may be repeated'),
    each: workerIn,
  },
  flag(
    '--intra-node-data-parallel-size <n>',
    'workers.ranks',
    number,
    'data-parallel ranks per server; each rank is a worker: URL@0, URL@1, …',
  ),
  flag(
    '--prefill-data-parallel-size <n>',
    'workers.prefillRanks',
    number,
    'the same for prefill workers only',
  ),
  flag('--decode-data-parallel-size <n>', 'workers.decodeRanks', number, 'the same for decode workers only'),
  flag(
    '--discovery-file <file>',
    'discovery.file.path',
    text,
    'file with the lists prefill and decode; watched for changes',
  ),
  flag(
    '--dns-prefill <url>',
    'discovery.dns.prefill',
    text,
    'discover prefill workers by DNS: http://NAME:PORT for A and AAAA records, srv://NAME for SRV',
  ),
  flag('--dns-decode <url>', 'discovery.dns.decode', text, 'discover decode workers by DNS'),
  flag('--dns-server <address>', 'discovery.dns.server', text, 'DNS server (default: the system’s servers)'),
  flag(
    '--service-discovery',
    'discovery.kubernetes.enabled',
    flagSwitch(true, false),
    'discover workers from Kubernetes EndpointSlices',
  ),
  {
    ...flag(
      '--prefill-selector <label...>',
      'discovery.kubernetes.prefillSelector',
      list,
      'labels of the prefill workers’ EndpointSlices, such as app=vllm role=prefill',
    ),
    each: String,
  },
  {
    ...flag(
      '--decode-selector <label...>',
      'discovery.kubernetes.decodeSelector',
      list,
      'labels of the decode workers’ EndpointSlices',
    ),
    each: String,
  },
  flag(
    '--service-discovery-port <n>',
    'discovery.kubernetes.port',
    number,
    'port of the workers (default: the EndpointSlice’s port)',
  ),
  flag(
    '--service-discovery-namespace <name>',
    'discovery.kubernetes.namespace',
    text,
    'Kubernetes namespace to watch (default: all namespaces)',
  ),
  flag(
    '--service-discovery-api-url <url>',
    'discovery.kubernetes.apiUrl',
    text,
    'URL of the Kubernetes API (default: the cluster’s, in a pod)',
  ),
  flag(
    '--policy <name>',
    'routing.policy',
    text,
    `decode policy: ${POLICIES.join(', ')} (default: ${DEFAULT_POLICY})`,
  ),
  {
    ...flag(
      '--shadow <policy...>',
      'routing.shadow',
      list,
      'policies that decide beside the policy in force and enforce nothing; see GET /eldr/shadow',
    ),
    each: String,
  },
  flag('--decode-policy <name>', 'routing.policy', text, 'the same as --policy'),
  flag(
    '--prefill-policy <name>',
    'routing.prefillPolicy',
    text,
    `prefill policy: ${PREFILL_POLICIES.join(', ')} (default: ${DEFAULT_PREFILL_POLICY})`,
  ),
  flag('--artifact <file>', 'routing.artifact', text, 'artifact written by `eldr fit`'),
  flag(
    '--tau <number>',
    'routing.tau',
    number,
    'weight of load against similarity, for eldr and band; eldr’s bound was tested at 0.1, smaller values give it up (default: 0.1)',
  ),
  flag('--profile <name>', 'routing.profile', text, 'cost profile of union: a name in profiles/ or a path'),
  flag(
    '--step-cost <how>',
    'routing.stepCost',
    text,
    'cost of a decode step for union: learnt from streams, or fixed by the profile (default: learnt)',
  ),
  flag(
    '--prefix-token-count <n>',
    'routing.prefixTokens',
    number,
    'number of leading prompt tokens that prefix_hash hashes (default: 256)',
  ),
  flag(
    '--prefix-hash-load-factor <x>',
    'routing.prefixLoadFactor',
    number,
    'multiple of the average load above which prefix_hash chooses another worker (default: 1.25)',
  ),
  flag(
    '--replica-store <url>',
    'replicas.url',
    text,
    'Redis or Valkey store shared by all gateways of the same workers',
  ),
  flag(
    '--adapt <mode>',
    'adapt.mode',
    text,
    'live recalibration when traffic drifts: off, suggest (only shows what it would give), on (default: suggest)',
  ),
  flag(
    '--adapt-folder <folder>',
    'adapt.folder',
    text,
    'folder for the artifacts of live recalibration (default: eldr-adapt)',
  ),
  flag('--replica-id <name>', 'replicas.id', text, 'name of this gateway (default: random)'),
  flag('--request-timeout-secs <s>', 'timeouts.requestMs', seconds, 'timeout of a request (default: 1800)'),
  flag(
    '--shutdown-grace-period-secs <s>',
    'server.shutdownGraceMs',
    seconds,
    'how long running streams may continue after SIGTERM (default: 30)',
  ),
  flag(
    '--max-concurrent-requests <n>',
    'limits.maxConcurrentRequests',
    orNoLimit,
    'max concurrent requests, further ones are queued; 0 or -1: no limit (default: 4096)',
  ),
  flag('--queue-size <n>', 'limits.queueSize', number, 'max queued requests (default: 1024)'),
  flag('--queue-timeout-secs <s>', 'limits.queueTimeoutMs', seconds, 'max wait in the queue (default: 30)'),
  flag(
    '--max-payload-size <bytes>',
    'server.maxBodyBytes',
    number,
    'max size of a request body (default: 33554432)',
  ),
  flag('--retry-max-retries <n>', 'retries.max', number, 'retries per leg (default: 2)'),
  flag(
    '--retry-initial-backoff-ms <ms>',
    'retries.backoffMs',
    number,
    'delay before the first retry (default: 50)',
  ),
  flag('--disable-retries', 'retries.max', flagSwitch(0), 'the same as --retry-max-retries 0'),
  flag(
    '--resume',
    'resume.enabled',
    flagSwitch(true),
    'continue streams whose decode worker fails on another one',
  ),
  flag(
    '--cb-failure-threshold <n>',
    'breaker.consecutiveFailures',
    number,
    'consecutive failures that open the circuit breaker of a worker (default: 5)',
  ),
  flag(
    '--cb-timeout-duration-secs <s>',
    'breaker.openMs',
    seconds,
    'how long the circuit breaker stays open (default: 10)',
  ),
  flag(
    '--cb-window-duration-secs <s>',
    'breaker.windowMs',
    seconds,
    'time window for the failure rate (default: 30)',
  ),
  flag(
    '--health-check-endpoint <path>',
    'health.path',
    text,
    'path of the health check on workers (default: /health)',
  ),
  flag(
    '--health-check-interval-secs <s>',
    'health.intervalMs',
    seconds,
    'interval between health checks of a worker (default: 5)',
  ),
  flag(
    '--health-check-timeout-secs <s>',
    'health.timeoutMs',
    seconds,
    'timeout of a health check (default: 2)',
  ),
  flag(
    '--health-failure-threshold <n>',
    'health.failures',
    number,
    'consecutive failures that mark a worker unhealthy (default: 2)',
  ),
  flag(
    '--health-success-threshold <n>',
    'health.successes',
    number,
    'consecutive successes that mark a worker healthy again (default: 1)',
  ),
  flag(
    '--prometheus-port <n>',
    'server.metricsPort',
    number,
    'separate port for /metrics (default: the main port)',
  ),
  flag(
    '--log-level <level>',
    'observe.logLevel',
    text,
    'log level: debug, info, warn, error, silent (default: info)',
  ),
  flag(
    '--json-log',
    'observe.logFormat',
    flagSwitch('json'),
    'log one JSON object per line, even on a terminal',
  ),
  flag('--api-key-file <file>', 'server.apiKeys', keysIn, 'file of accepted client API keys, one per line'),
  flag('--admin-token-file <file>', 'server.adminToken', onlyLineOf, 'file with the token for the admin API'),
  flag('--tls-cert-path <file>', 'server.tls.certFile', text, 'certificate of the gateway (PEM)'),
  flag('--tls-key-path <file>', 'server.tls.keyFile', text, 'private key of the gateway (PEM)'),
  flag('--ca-cert-path <file>', 'workers.tls.caFile', text, 'CA of the workers’ certificates (PEM)'),
  flag(
    '--client-cert-path <file>',
    'workers.tls.certFile',
    text,
    'client certificate that the gateway presents to workers (PEM)',
  ),
  flag(
    '--client-key-path <file>',
    'workers.tls.keyFile',
    text,
    'private key of the client certificate (PEM)',
  ),
  flag(
    '--dashboard <who>',
    'observe.dashboard',
    text,
    'access to /dashboard: admin, open (everyone may view), off (default: admin)',
  ),
  flag(
    '--debug-headers',
    'observe.debugHeaders',
    flagSwitch(true, false),
    'add X-Eldr-* headers to every response',
  ),
  flag(
    '--otlp-endpoint <url>',
    'observe.traces.endpoint',
    text,
    'OTLP over HTTP endpoint for traces, such as http://collector:4318',
  ),
  flag(
    '--trace-sample-ratio <x>',
    'observe.traces.sampleRatio',
    number,
    'share of requests to trace (default: 1)',
  ),
  {
    env: 'OTEL_EXPORTER_OTLP_ENDPOINT',
    name: 'observe.traces.endpoint',
    read: text,
    yields: true,
    help: 'the same as ELDR_OTLP_ENDPOINT',
  },
  {
    env: 'OTEL_EXPORTER_OTLP_HEADERS',
    name: 'observe.traces.headers',
    read: headerList,
    yields: true,
    help: 'NAME=VALUE pairs, comma-separated',
  },
  {
    env: 'OTEL_SERVICE_NAME',
    name: 'observe.traces.serviceName',
    read: text,
    yields: true,
    help: 'service.name of the traces',
  },
  { env: 'ELDR_API_KEYS', name: 'server.apiKeys', read: list, help: 'comma-separated keys' },
  { env: 'ELDR_ADMIN_TOKEN', name: 'server.adminToken', read: text, help: 'the token itself' },
  {
    env: 'ELDR_WORKER_API_KEY',
    name: 'workers.apiKey',
    read: text,
    help: 'bearer token for workers',
  },
]

/** The configuration file. Not a setting itself. */
export const CONFIG = {
  flag: '--config <file>',
  env: 'ELDR_CONFIG',
  help: 'YAML or JSON file; docs/reference/config.md lists its keys',
} as const

/** `--port <n>` → --port */
export function longNameOf(flag: string): string {
  return flag.split(' ')[0]!
}

function envOf(flag: string): string {
  return `ELDR_${longNameOf(flag).slice(2).replaceAll('-', '_').toUpperCase()}`
}
