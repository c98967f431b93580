/**
 * Schema of the configuration file: keys, defaults and descriptions. The reference page, the JSON Schema and
 * the error messages are generated from it.
 *
 * The schema transforms nothing (both spellings of a policy, a trailing slash in a URL), so that it can be
 * published. `settle.ts` does.
 */
import { ENGINE_NAMES } from '../../engines/engine-table.ts'
import * as z from 'zod'
import { DEFAULT_POLICY, POLICIES } from '../../../policy/decode-policy.ts'
import { DEFAULT_PREFILL_POLICY, PREFILL_POLICIES } from '../../../policy/prefill-policy.ts'
import { DNS_EXAMPLE, isDnsServer, dnsTargetProblem } from '../dns-target.ts'
import { LOG_LEVELS } from '../settings.ts'
import {
  ENDPOINT_EXAMPLE,
  MAX_RANKS,
  ORIGIN_EXAMPLE,
  apiUrlProblem,
  endpointProblem,
  workerUrlProblem,
} from '../origin.ts'
import { MASK } from '../mask.ts'
import { address, file, MAX_TAU, ms, secret, share, spellings, text, whole } from './schema-parts.ts'
import { replicas } from './schema-replicas.ts'
import { MAX_CLUSTER } from '../worker-form.ts'
import { WORKER_ID, WORKER_ID_EXPECTED } from '../worker-id.ts'

const MIB = 1_048_576

const url = () => address(ORIGIN_EXAMPLE, workerUrlProblem)
const id = () => text(WORKER_ID_EXPECTED, WORKER_ID)
const ranks = () => whole(1, MAX_RANKS).optional()
const URL_MEANING = `Origin of the worker, such as ${ORIGIN_EXAMPLE}. Append @RANK for one data-parallel rank.`
const ID_MEANING =
  'Unique worker id, used in metrics and the admin API. Default: host and port, followed by @RANK for a rank.'
const prefillWorker = z.strictObject({
  url: url().describe(URL_MEANING),
  id: id().optional().describe(ID_MEANING),
  dpRank: whole(0, MAX_RANKS - 1)
    .optional()
    .describe('Data-parallel rank that gets the requests.'),
  ranks: ranks().describe(
    'Number of data-parallel ranks of the server. Each rank, from 0, is a worker. 1: no rank is sent.',
  ),
})
const decodeWorker = prefillWorker.extend({
  cluster: whole(0, MAX_CLUSTER)
    .optional()
    .describe(
      'Cluster of the artifact. Ranks of one server get consecutive clusters. Default: position in the list. Set it for all decode workers or for none.',
    ),
})

const server = z.strictObject({
  host: text('an address or a host name', /^[^\s/]+$/)
    .default('127.0.0.1')
    .describe('Address to listen on. Use 0.0.0.0 in a container.'),
  port: whole(0, 65_535).default(8000).describe('Port to listen on. 0: any free port.'),
  processes: whole(1, 64)
    .default(1)
    .describe(
      'Number of processes that relay requests. With two or more, another process makes all routing decisions (docs/guides/processes.md).',
    ),
  metricsPort: whole(1, 65_535)
    .optional()
    .describe('Separate port for /metrics. Default: served on the main port.'),
  tls: z
    .strictObject({
      certFile: file('a PEM file with the certificate').describe('Certificate of the gateway (PEM).'),
      keyFile: file('a PEM file with the private key').describe('Private key of the gateway (PEM).'),
      caFile: file('a PEM file with certificates')
        .optional()
        .describe('If set, clients must present a certificate issued by this CA (PEM).'),
    })
    .optional(),
  apiKeys: z
    .array(secret())
    .default([])
    .describe('Secret. Accepted API keys; clients must send one as a bearer token. Empty: no key required.'),
  adminToken: secret()
    .optional()
    .describe(
      'Secret. Token for all routes under /eldr. Without it, these routes serve loopback connections only.',
    ),
  maxBodyBytes: whole(1024, 1024 * MIB)
    .default(32 * MIB)
    .describe('Max size of a request body.'),
  maxHeaderBytes: whole(1024, MIB).default(16_384).describe('Max total size of the request headers.'),
  headersTimeoutMs: ms().default(10_000).describe('Timeout for receiving the request headers.'),
  bodyTimeoutMs: ms().default(60_000).describe('Timeout for receiving the whole request.'),
  clientStallMs: ms()
    .default(60_000)
    .describe('Disconnect a client that reads nothing for this long while data is waiting for it.'),
  keepAliveMs: ms().default(5_000).describe('How long an idle client connection is kept open.'),
  shutdownGraceMs: ms(0)
    .default(30_000)
    .describe(
      'How long running streams may continue after SIGTERM. Must be shorter than the orchestrator’s grace period.',
    ),
  replaceGraceMs: ms(0)
    .default(1_800_000)
    .describe('How long running streams may continue after another process has replaced theirs.'),
  replaceReadyMs: ms()
    .default(60_000)
    .describe('How long a process that replaces this one may take to start before it is stopped.'),
})

/** Worker lists of the configuration and of the file that discovery watches. */
const lists = {
  prefill: z
    .array(z.union([url(), prefillWorker]))
    .default([])
    .describe('Prefill workers: URLs or objects.'),
  decode: z
    .array(z.union([url(), decodeWorker]))
    .default([])
    .describe('Decode workers: URLs or objects. The k-th worker serves cluster k of the artifact.'),
}
export const workerListsSchema = z.strictObject(lists)

const workers = z.strictObject({
  engine: z
    .enum(ENGINE_NAMES)
    .default(ENGINE_NAMES[0])
    .describe('Serving engine and its hand-off from prefill to decode.'),
  ...lists,
  ranks: ranks().describe(
    'Default number of data-parallel ranks per server, configured or discovered. Each rank is a worker. 1 or unset: no rank is sent.',
  ),
  prefillRanks: ranks().describe('Overrides ranks for prefill workers.'),
  decodeRanks: ranks().describe('Overrides ranks for decode workers.'),
  apiKey: secret().optional().describe('Secret. Bearer token for workers, sent instead of the client’s.'),
  tls: z
    .strictObject({
      caFile: file('a PEM file with certificates')
        .optional()
        .describe('CA of the workers’ certificates (PEM).'),
      certFile: file('a PEM file with the certificate')
        .optional()
        .describe('Client certificate that the gateway presents to workers (PEM).'),
      keyFile: file('a PEM file with the private key')
        .optional()
        .describe('Private key of the client certificate (PEM).'),
      insecure: z.boolean().optional().describe('Accept any worker certificate. For testing only.'),
    })
    .optional(),
  idleConnectionMs: ms()
    .default(4_000)
    .describe(
      'How long an idle connection to a worker is kept open. Must be shorter than the worker’s keep-alive timeout (uvicorn: 5000).',
    ),
})

const dnsName = () => address(DNS_EXAMPLE, dnsTargetProblem)
/** A Kubernetes label, KEY=VALUE; the key may have a prefix. */
const label = () =>
  text(
    'a label such as app=vllm, one per item',
    /^([a-z\d.-]{1,253}\/)?[A-Za-z\d]([\w.-]{0,61}[A-Za-z\d])?=([A-Za-z\d]([\w.-]{0,61}[A-Za-z\d])?)?$/,
  )
const selector = (role: string) =>
  z
    .array(label())
    .default([])
    .describe(
      `Labels (KEY=VALUE) of the EndpointSlices of ${role} workers. A slice must have all of them. Slices carry the labels of their Service.`,
    )

const discovery = z.strictObject({
  removeAfterMs: ms(0)
    .default(30_000)
    .describe(
      'A worker that disappears or is not ready is drained at once. It is removed after this time, once its last request has ended.',
    ),
  retryMs: ms()
    .default(1_000)
    .describe('Wait after a failed lookup. It doubles with each failure, up to 30 s, with random jitter.'),
  file: z
    .strictObject({
      path: file('a YAML or JSON file with the lists prefill and decode').describe(
        'File with the lists prefill and decode, in the format of workers. The gateway watches it for changes.',
      ),
      pollMs: ms()
        .default(5_000)
        .describe('How often the file is polled, for file systems without change notifications.'),
    })
    .optional(),
  dns: z
    .strictObject({
      prefill: dnsName()
        .optional()
        .describe('DNS name of the prefill workers, in the format of discovery.dns.decode.'),
      decode: dnsName().optional().describe(`DNS name of the decode workers, such as ${DNS_EXAMPLE}.`),
      server: text('an address such as 10.96.0.10 or [fd00::10]:53')
        .refine(isDnsServer, { error: 'expected an address such as 10.96.0.10 or [fd00::10]:53' })
        .optional()
        .describe('DNS server, with a port if it is not 53. Default: the system’s servers.'),
      family: z
        .enum(['auto', 'ipv4', 'ipv6'])
        .default('auto')
        .describe('Address family. auto: IPv6 only for names without an IPv4 address.'),
      intervalMs: ms()
        .default(10_000)
        .describe('Interval between lookups. Shorter if the records’ TTL is shorter.'),
    })
    .optional(),
  kubernetes: z
    .strictObject({
      enabled: z.boolean().default(false).describe('Discover workers from Kubernetes EndpointSlices.'),
      prefillSelector: selector('prefill'),
      decodeSelector: selector('decode'),
      namespace: text('the name of a namespace', /^[a-z\d]([a-z\d-]{0,61}[a-z\d])?$/)
        .optional()
        .describe('Kubernetes namespace to watch. Default: all namespaces, which needs a ClusterRole.'),
      port: whole(1, 65_535)
        .optional()
        .describe('Port of the workers. Default: the slice’s port named http, else its first.'),
      scheme: z.enum(['http', 'https']).default('http').describe('Protocol for workers.'),
      apiUrl: address('https://10.0.0.1:6443', apiUrlProblem)
        .optional()
        .describe('URL of the Kubernetes API. Default in a pod: the cluster’s.'),
      tokenFile: file('a file with a token')
        .optional()
        .describe(
          'Token for the Kubernetes API, read again for each request. Default in a pod: the service account’s.',
        ),
      caFile: file('a PEM file with certificates')
        .optional()
        .describe('CA of the Kubernetes API’s certificate (PEM). Default in a pod: the service account’s.'),
      silentMs: ms()
        .default(120_000)
        .describe(
          'Restart a watch that has been silent for this long. API servers send a bookmark every minute.',
        ),
    })
    .optional(),
})

const routing = z.strictObject({
  policy: spellings(POLICIES).default(DEFAULT_POLICY).describe('Decode policy.'),
  shadow: z
    .array(spellings(POLICIES))
    .max(POLICIES.length)
    .default([])
    .describe(
      'Policies that decide beside the policy in force on the same requests and enforce nothing. GET /eldr/shadow compares them.',
    ),
  prefillPolicy: spellings(PREFILL_POLICIES).default(DEFAULT_PREFILL_POLICY).describe('Prefill policy.'),
  tau: z
    .number()
    .min(0)
    .max(MAX_TAU)
    .default(0.1)
    .describe(
      'Weight of load against similarity. eldr: a worker whose cosine is this much higher may have a sixth of the mean load more, in small batches less; the bound on what eldr can cost against jsq was tested at 0.1, and smaller values give it up (the gateway warns below 0.05). band: candidates are workers whose cosine is at most this far below the best.',
    ),
  artifact: file('an artifact of `eldr fit`')
    .optional()
    .describe(
      'Artifact written by `eldr fit`. Required for eldr and domain; improves the predictions of union.',
    ),
  profile: text('a name of profiles/ or the path of a .json file')
    .optional()
    .describe(
      'Cost profile of union: a name in profiles/ or a path. Default: the built-in cost of an H200. If costs are learnt, union starts from it.',
    ),
  stepCost: z
    .enum(['learnt', 'fixed'])
    .default('learnt')
    .describe(
      'Cost of a decode step that union goes by. learnt: estimated for each decode worker from the times between tokens of its streams. fixed: the profile, for all workers.',
    ),
  prefixTokens: whole(1, 1_000_000)
    .default(256)
    .describe('Number of leading prompt tokens that prefix_hash hashes. 4 bytes of text count as one token.'),
  prefixLoadFactor: z
    .number()
    .min(1)
    .max(1000)
    .default(1.25)
    .describe(
      'prefix_hash chooses another worker if the preferred one has more than this multiple of the average load.',
    ),
  minCovered: z
    .number()
    .min(0)
    .max(1)
    .default(0.5)
    .describe(
      'A request is routed by load if the expert counts of its hand-off cover less than this share of the prompt.',
    ),
  refit: z
    .enum(['auto', 'off'])
    .default('auto')
    .describe(
      'What to do if the number of decode workers differs from the number of clusters. auto: refit. off: keep the clusters.',
    ),
  reuseTokenIds: z
    .boolean()
    .default(false)
    .describe(
      'Pass the prompt token ids of a chat from prefill to decode, so that the chat template runs only once.',
    ),
})

const conversations = z.strictObject({
  enabled: z
    .boolean()
    .default(false)
    .describe(
      'Prefer the decode worker that has the KV cache of the conversation’s last turn; the time saved is weighed against expert sharing and load. Needs decode workers with a prefix cache. Each gateway knows the conversations that it served.',
    ),
  maxEntries: whole(1, 1_000_000)
    .default(2_048)
    .describe(
      'Max conversations remembered, as hashes and the expert counts of the last turn: about 40 kB each for 48 layers of 128 experts. The least recently used is forgotten first.',
    ),
  keptMs: ms()
    .default(300_000)
    .describe('Forget a conversation after this time: its KV cache has probably been evicted.'),
  skipPrefillBelowTokens: whole(0, 1_000_000)
    .default(0)
    .describe(
      'A turn with at most this many new tokens may skip the remote prefill: the decode worker computes them, if that saves more time than the requests there lose. It is routed by the expert counts of the last turn. 0: never.',
    ),
})

const adapt = z.strictObject({
  mode: z
    .enum(['off', 'suggest', 'on'])
    .default('suggest')
    .describe(
      'Live recalibration: samples requests, and refits the artifact when they have drifted away from it. suggest: only shows what a refit would give (/eldr/adapt, dashboard, log). on: also swaps the artifact. Needs an artifact.',
    ),
  folder: text('the path of a folder', /^[^\0]+$/)
    .default('eldr-adapt')
    .describe('Folder for the artifacts of swaps, created at the first one.'),
  kept: whole(1, 1_000)
    .default(8)
    .describe('Swaps kept in the folder, each with the artifact that it replaced.'),
  sampleRequests: whole(256, 65_536)
    .default(1_024)
    .describe(
      'Requests in the sample. Each takes 2 bytes per expert of each layer, another 2 if the artifact has two signatures, and 1 if workers report decode counts: 1,024 requests of 48 layers × 128 experts take 12 to 30 MB. No text is kept.',
    ),
  halfLifeMs: ms().default(300_000).describe('Time after which a request counts half as much in the sample.'),
  minGain: z
    .number()
    .min(0)
    .max(1)
    .default(0.01)
    .describe(
      'Smallest predicted gain, as a share of the time of a decode step, that is worth a swap. It must also exceed its noise.',
    ),
  watchMs: ms()
    .default(300_000)
    .describe(
      'How long TPOT is watched after a swap, which is undone if the p99 gets worse beyond its noise.',
    ),
})

const limits = z.strictObject({
  maxConcurrentRequests: whole(0, 1_000_000)
    .default(4096)
    .describe('Max concurrent requests. Further requests wait in the queue. 0: no limit.'),
  queueSize: whole(0, 1_000_000)
    .default(1024)
    .describe('Max queued requests. Further requests get status 429.'),
  queueTimeoutMs: ms().default(30_000).describe('Max wait in the queue.'),
  maxChoices: whole(1, 10_000).default(128).describe('Max choices × prompts per request.'),
})

const timeouts = z.strictObject({
  connectMs: ms().default(2_000).describe('Timeout for connecting to a worker.'),
  prefillMs: ms().default(120_000).describe('Timeout for the complete prefill response.'),
  firstTokenMs: ms().default(60_000).describe('Timeout for the first byte of the decode response body.'),
  betweenTokensMs: ms().default(30_000).describe('Max gap between two chunks of a decode stream.'),
  requestMs: ms().default(1_800_000).describe('Timeout for the whole request.'),
})

const retries = z.strictObject({
  max: whole(0, 10).default(2).describe('Retries per leg.'),
  budgetShare: z
    .number()
    .min(0)
    .max(1)
    .default(0.2)
    .describe('Max ratio of retries to requests, so that retries do not make an outage worse.'),
  backoffMs: ms(0).default(50).describe('Delay before the first retry.'),
})

const resume = z.strictObject({
  enabled: z
    .boolean()
    .default(false)
    .describe('Whether another decode worker goes on with a stream whose worker fails.'),
  maxPerRequest: whole(1, 100).default(3).describe('How often one request is resumed.'),
  maxTokens: whole(1, 10_000_000)
    .default(32_768)
    .describe('Max tokens of prompt and response whose ids are kept; a longer stream is not resumed.'),
  sampled: z
    .boolean()
    .default(false)
    .describe(
      'Resume sampled responses of vLLM too. The tokens after the break are drawn with other random numbers.',
    ),
})

const lease = z.strictObject({
  durationMs: ms().default(30_000).describe('kv_lease_duration of the prefill workers.'),
  usableShare: share().default(0.6).describe('A hand-off older than this share of the lease is discarded.'),
})

const breaker = z.strictObject({
  consecutiveFailures: whole(1, 1000)
    .default(5)
    .describe('Consecutive failures that open the circuit breaker of a worker.'),
  windowMs: ms().default(30_000).describe('Time window for the failure rate.'),
  windowRequests: whole(1, 1_000_000)
    .default(20)
    .describe('Min number of finished requests in the window before the failure rate counts.'),
  windowFailureShare: share()
    .default(0.5)
    .describe('Failure rate within the window that opens the circuit breaker.'),
  openMs: ms()
    .default(10_000)
    .describe('How long the circuit breaker stays open before one probe request is allowed.'),
})

const health = z.strictObject({
  path: text('a path that begins with /, such as /health', /^\/[^\s#]*$/)
    .default('/health')
    .describe('Path of the health check on workers.'),
  intervalMs: ms().default(5_000).describe('Interval between health checks of a worker.'),
  timeoutMs: ms().default(2_000).describe('Timeout of a health check.'),
  failures: whole(1, 1000).default(2).describe('Consecutive failures that mark a worker unhealthy.'),
  successes: whole(1, 1000).default(1).describe('Consecutive successes that mark a worker healthy again.'),
})

const traces = z.strictObject({
  endpoint: address(ENDPOINT_EXAMPLE, endpointProblem)
    .optional()
    .describe(
      `OTLP over HTTP endpoint for traces, such as ${ENDPOINT_EXAMPLE}; /v1/traces is appended. Without it, tracing is off.`,
    ),
  headers: z
    .array(
      text('NAME=VALUE, such as authorization=Bearer KEY', /^[\w!#$%&'*+.^`|~-]+=[\x20-\x7e]+$/)
        .refine(value => value !== MASK, {
          error: 'this is a secret masked by `eldr config print`: use the real one',
        })
        .meta({ writeOnly: true }),
    )
    .default([])
    .describe('Secret. Headers for requests to the collector, each NAME=VALUE.'),
  serviceName: text('1 to 255 visible characters', /^[\x20-\x7e]{1,255}$/)
    .default('eldr')
    .describe('service.name of the traces.'),
  sampleRatio: z
    .number()
    .min(0)
    .max(1)
    .default(1)
    .describe('Share of requests to trace. A traceparent header from the client overrides it.'),
  batchSpans: whole(1, 10_000).default(256).describe('Approximate number of spans per export.'),
  everyMs: ms().default(1_000).describe('Max delay before a smaller batch is exported.'),
  queueSpans: whole(1, 1_000_000)
    .default(8_192)
    .describe('Max spans queued for the collector. Further traces are dropped and counted.'),
  timeoutMs: ms().default(10_000).describe('Timeout of an export.'),
  flushMs: ms(0)
    .default(3_000)
    .describe('How long the final export may take at shutdown, after all streams have ended.'),
})

const observe = z.strictObject({
  logLevel: z.enum(LOG_LEVELS).default('info').describe('Log level.'),
  logFormat: z
    .enum(['auto', 'json', 'pretty'])
    .default('auto')
    .describe('Log format. auto: pretty on a terminal, else one JSON object per line.'),
  debugHeaders: z
    .boolean()
    .default(false)
    .describe(
      'Add X-Eldr-* headers, which name workers, to every response. Otherwise only requests with `X-Eldr-Debug: ADMIN_TOKEN` get them (`X-Eldr-Debug: 1` on loopback if no token is set).',
    ),
  decisionsKept: whole(0, 100_000)
    .default(256)
    .describe('Number of decisions kept for /eldr/decisions, and of requests kept for /eldr/requests.'),
  dashboard: z
    .enum(['admin', 'open', 'off'])
    .default('admin')
    .describe(
      'Access to /dashboard. admin: same access as the admin API. open: everyone may view it, changes need the token. off: disabled.',
    ),
  traces: traces.prefault({}),
})

export const fileSchema = z.strictObject({
  $schema: z
    .string({ error: 'the address of a JSON Schema' })
    .optional()
    .describe('For editors. Ignored by ELDR.'),
  server: server.prefault({}),
  workers: workers.prefault({}),
  discovery: discovery.prefault({}),
  routing: routing.prefault({}),
  conversations: conversations.prefault({}),
  adapt: adapt.prefault({}),
  replicas: replicas.prefault({}),
  limits: limits.prefault({}),
  timeouts: timeouts.prefault({}),
  retries: retries.prefault({}),
  resume: resume.prefault({}),
  lease: lease.prefault({}),
  breaker: breaker.prefault({}),
  health: health.prefault({}),
  observe: observe.prefault({}),
})

/** The file's content with defaults applied. */
export type FileForm = z.output<typeof fileSchema>
