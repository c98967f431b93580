/**
 * What can be set from outside a file, in one table: flag, place in the settings, environment variable. `eldr serve --help`, the
 * reference page and the reading of the command line are all made from it, and a test walks it, so that no flag is accepted in vain.
 * Names are those of vllm-router and sglang-router where they have one. No package is loaded for it: help must be quick.
 */
import { DEFAULT_PREFILL_POLICY, PREFILL_POLICIES } from '../../../policy/prefill-policy.ts'
import { defaultPolicy, POLICIES } from '../../../policy/decode-policy.ts'
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
  /** As commander writes it, such as `--port <n>`; absent where only the environment can say it. */
  readonly flag?: string
  readonly env: string
  readonly name: SettingName
  readonly read: Reader
  /** Of a flag that is said again: each value of it. */
  readonly each?: (text: string) => unknown
  /** A variable that is not ours alone: where one of ours says the same setting, that counts. */
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
    'address to listen on; 0.0.0.0 in a container (default: 127.0.0.1)',
  ),
  flag('--port <n>', 'server.port', number, 'port to listen on; 0 takes any free one (default: 8000)'),
  flag(
    '--processes <n>',
    'server.processes',
    number,
    'processes that relay requests, with another that decides for them (default: 1)',
  ),
  {
    ...flag(
      '--prefill <url...>',
      'workers.prefill',
      workerList,
      'a prefill worker, such as http://10.0.0.7:8000, or NAME=URL; URL@2 is its data-parallel rank 2; again for each',
    ),
    each: workerIn,
  },
  {
    ...flag('--decode <url...>', 'workers.decode', workerList, 'a decode worker; again for each'),
    each: workerIn,
  },
  flag(
    '--intra-node-data-parallel-size <n>',
    'workers.ranks',
    number,
    'data-parallel engines of each server, each a worker of its own: URL@0, URL@1, …',
  ),
  flag(
    '--prefill-data-parallel-size <n>',
    'workers.prefillRanks',
    number,
    'the same for prefill workers alone',
  ),
  flag('--decode-data-parallel-size <n>', 'workers.decodeRanks', number, 'the same for decode workers alone'),
  flag(
    '--discovery-file <file>',
    'discovery.file.path',
    text,
    'file with the lists prefill and decode, which is followed',
  ),
  flag(
    '--dns-prefill <url>',
    'discovery.dns.prefill',
    text,
    'prefill workers by DNS: http://NAME:PORT for addresses, srv://NAME for SRV',
  ),
  flag('--dns-decode <url>', 'discovery.dns.decode', text, 'decode workers by DNS'),
  flag(
    '--dns-server <address>',
    'discovery.dns.server',
    text,
    'DNS server to ask (default: those of the machine)',
  ),
  flag(
    '--service-discovery',
    'discovery.kubernetes.enabled',
    flagSwitch(true, false),
    'follow EndpointSlices of Kubernetes',
  ),
  {
    ...flag(
      '--prefill-selector <label...>',
      'discovery.kubernetes.prefillSelector',
      list,
      'labels of the prefill workers’ slices, such as app=vllm role=prefill',
    ),
    each: String,
  },
  {
    ...flag(
      '--decode-selector <label...>',
      'discovery.kubernetes.decodeSelector',
      list,
      'labels of the decode workers’ slices',
    ),
    each: String,
  },
  flag(
    '--service-discovery-port <n>',
    'discovery.kubernetes.port',
    number,
    'port of the workers (default: that of the slice)',
  ),
  flag(
    '--service-discovery-namespace <name>',
    'discovery.kubernetes.namespace',
    text,
    'namespace to follow; all unless told',
  ),
  flag(
    '--service-discovery-api-url <url>',
    'discovery.kubernetes.apiUrl',
    text,
    'address of the API (default: that of the pod’s cluster)',
  ),
  flag(
    '--policy <name>',
    'routing.policy',
    text,
    `decode policy: ${POLICIES.join(', ')} (default: ${defaultPolicy(true)} with an artifact, else ${defaultPolicy(false)})`,
  ),
  flag('--decode-policy <name>', 'routing.policy', text, 'the same as --policy'),
  flag(
    '--prefill-policy <name>',
    'routing.prefillPolicy',
    text,
    `${PREFILL_POLICIES.join(', ')} (default: ${DEFAULT_PREFILL_POLICY})`,
  ),
  flag('--artifact <file>', 'routing.artifact', text, 'artifact of `eldr fit`'),
  flag('--tau <number>', 'routing.tau', number, 'locality band of eldr (default: 0.1)'),
  flag(
    '--profile <name>',
    'routing.profile',
    text,
    'cost profile of union: a name under profiles/ or a path',
  ),
  flag(
    '--prefix-token-count <n>',
    'routing.prefixTokens',
    number,
    'leading tokens that prefix_hash looks at (default: 256)',
  ),
  flag(
    '--prefix-hash-load-factor <x>',
    'routing.prefixLoadFactor',
    number,
    'load at which it looks elsewhere (default: 1.25)',
  ),
  flag(
    '--replica-store <url>',
    'replicas.url',
    text,
    'Redis or Valkey by which gateways before the same workers know of each other',
  ),
  flag('--replica-id <name>', 'replicas.id', text, 'name of this gateway among them (default: made up)'),
  flag(
    '--request-timeout-secs <s>',
    'timeouts.requestMs',
    seconds,
    'longest that a request may take (default: 1800)',
  ),
  flag(
    '--shutdown-grace-period-secs <s>',
    'server.shutdownGraceMs',
    seconds,
    'streams may go on so long after SIGTERM (default: 30)',
  ),
  flag(
    '--max-concurrent-requests <n>',
    'limits.maxConcurrentRequests',
    orNoLimit,
    'more wait; 0 or -1 is no limit (default: 4096)',
  ),
  flag('--queue-size <n>', 'limits.queueSize', number, 'requests that may wait (default: 1024)'),
  flag('--queue-timeout-secs <s>', 'limits.queueTimeoutMs', seconds, 'longest wait (default: 30)'),
  flag(
    '--max-payload-size <bytes>',
    'server.maxBodyBytes',
    number,
    'largest request body (default: 33554432)',
  ),
  flag('--retry-max-retries <n>', 'retries.max', number, 'tries of each leg beyond the first (default: 2)'),
  flag(
    '--retry-initial-backoff-ms <ms>',
    'retries.backoffMs',
    number,
    'wait before the first of them (default: 50)',
  ),
  flag('--disable-retries', 'retries.max', flagSwitch(0), 'the same as --retry-max-retries 0'),
  flag(
    '--cb-failure-threshold <n>',
    'breaker.consecutiveFailures',
    number,
    'failures in a row that take a worker out (default: 5)',
  ),
  flag('--cb-timeout-duration-secs <s>', 'breaker.openMs', seconds, 'until it is tried again (default: 10)'),
  flag(
    '--cb-window-duration-secs <s>',
    'breaker.windowMs',
    seconds,
    'window over which the share of failures counts (default: 30)',
  ),
  flag(
    '--health-check-endpoint <path>',
    'health.path',
    text,
    'path that workers are asked at (default: /health)',
  ),
  flag(
    '--health-check-interval-secs <s>',
    'health.intervalMs',
    seconds,
    'between two checks of a worker (default: 5)',
  ),
  flag(
    '--health-check-timeout-secs <s>',
    'health.timeoutMs',
    seconds,
    'a later answer is a failure (default: 2)',
  ),
  flag(
    '--health-failure-threshold <n>',
    'health.failures',
    number,
    'failures in a row that take a worker out (default: 2)',
  ),
  flag(
    '--health-success-threshold <n>',
    'health.successes',
    number,
    'successes in a row that bring it back (default: 1)',
  ),
  flag(
    '--prometheus-port <n>',
    'server.metricsPort',
    number,
    'metrics on a port of their own (default: /metrics on the main one)',
  ),
  flag('--log-level <level>', 'observe.logLevel', text, 'debug, info, warn, error, silent (default: info)'),
  flag(
    '--json-log',
    'observe.logFormat',
    flagSwitch('json'),
    'a JSON object on each line, also on a terminal',
  ),
  flag(
    '--api-key-file <file>',
    'server.apiKeys',
    keysIn,
    'clients must bring one of these keys, one on each line',
  ),
  flag(
    '--admin-token-file <file>',
    'server.adminToken',
    onlyLineOf,
    'token for admin routes that change something',
  ),
  flag('--tls-cert-path <file>', 'server.tls.certFile', text, 'certificate of the gateway (PEM)'),
  flag('--tls-key-path <file>', 'server.tls.keyFile', text, 'its private key (PEM)'),
  flag('--ca-cert-path <file>', 'workers.tls.caFile', text, 'authority of the workers’ certificates (PEM)'),
  flag(
    '--client-cert-path <file>',
    'workers.tls.certFile',
    text,
    'certificate that is shown to workers (PEM)',
  ),
  flag('--client-key-path <file>', 'workers.tls.keyFile', text, 'its private key (PEM)'),
  flag(
    '--dashboard <who>',
    'observe.dashboard',
    text,
    'who may look at /dashboard: admin, open (anybody), off (default: admin)',
  ),
  flag(
    '--debug-headers',
    'observe.debugHeaders',
    flagSwitch(true, false),
    'X-Eldr-* headers on every answer',
  ),
  flag(
    '--otlp-endpoint <url>',
    'observe.traces.endpoint',
    text,
    'send traces to this collector by OTLP over HTTP, such as http://collector:4318',
  ),
  flag(
    '--trace-sample-ratio <x>',
    'observe.traces.sampleRatio',
    number,
    'share of requests that are traced (default: 1)',
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
    help: 'NAME=VALUE with commas between them',
  },
  {
    env: 'OTEL_SERVICE_NAME',
    name: 'observe.traces.serviceName',
    read: text,
    yields: true,
    help: 'service.name of the traces',
  },
  { env: 'ELDR_API_KEYS', name: 'server.apiKeys', read: list, help: 'keys with commas between them' },
  { env: 'ELDR_ADMIN_TOKEN', name: 'server.adminToken', read: text, help: 'the token itself' },
  {
    env: 'ELDR_WORKER_API_KEY',
    name: 'workers.apiKey',
    read: text,
    help: 'sent to workers as a bearer token',
  },
]

/** Not a setting: where settings are. */
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
