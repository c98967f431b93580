/**
 * The configuration file: what may stand in it, defaults and meanings. Reference page, JSON Schema and messages are made from it.
 *
 * Nothing is changed on the way (both spellings of a policy, URLs with a slash at the end): `settle.ts` does that, so that the schema can
 * be published as it is.
 */
import * as z from 'zod'
import { defaultPolicy, POLICIES } from '../../../policy/decode-policy.ts'
import { DEFAULT_PREFILL_POLICY, PREFILL_POLICIES } from '../../../policy/prefill-policy.ts'
import { DNS_EXAMPLE, isDnsServer, wrongDnsTarget } from '../dns-target.ts'
import { LOG_LEVELS } from '../settings.ts'
import {
  ENDPOINT_EXAMPLE,
  MAX_RANKS,
  ORIGIN_EXAMPLE,
  wrongApiUrl,
  wrongEndpoint,
  wrongWorkerUrl,
} from '../origin.ts'
import { MASK } from '../mask.ts'
import { address, file, MAX_TAU, ms, secret, share, spellings, text, whole } from './schema-parts.ts'
import { replicas } from './schema-replicas.ts'
import { MAX_CLUSTER } from '../worker-form.ts'
import { WORKER_ID, WORKER_ID_WORDS } from '../worker-id.ts'

const MIB = 1_048_576

const url = () => address(ORIGIN_EXAMPLE, wrongWorkerUrl)
const id = () => text(WORKER_ID_WORDS, WORKER_ID)
const ranks = () => whole(1, MAX_RANKS).optional()
const URL_MEANING = `Origin of the worker, such as ${ORIGIN_EXAMPLE}; with @RANK behind it, of one data-parallel rank.`
const ID_MEANING =
  'Unique over all workers; host and port unless told, with @RANK behind it for a rank. Metrics and the admin API use it.'
const prefillWorker = z.strictObject({
  url: url().describe(URL_MEANING),
  id: id().optional().describe(ID_MEANING),
  dpRank: whole(0, MAX_RANKS - 1)
    .optional()
    .describe('Data-parallel rank: requests are sent to this engine of the server.'),
  ranks: ranks().describe(
    'Data-parallel engines of the server: one worker for each, ranks from 0. 1: one engine, no rank is sent.',
  ),
})
const decodeWorker = prefillWorker.extend({
  cluster: whole(0, MAX_CLUSTER)
    .optional()
    .describe(
      'Its cluster of the artifact; its place in the list unless told; ranks get this one and those after it. For all decode workers or for none.',
    ),
})

const server = z.strictObject({
  host: text('an address or a host name', /^[^\s/]+$/)
    .default('127.0.0.1')
    .describe('Address to listen on. Containers need 0.0.0.0.'),
  port: whole(0, 65_535).default(8000).describe('Port to listen on; 0 takes any free one.'),
  processes: whole(1, 64)
    .default(1)
    .describe(
      'Processes that relay requests; with two or more another one decides for all of them (docs/guides/processes.md).',
    ),
  metricsPort: whole(1, 65_535)
    .optional()
    .describe('Metrics on a port of their own; otherwise at /metrics on the main one.'),
  tls: z
    .strictObject({
      certFile: file('a PEM file with the certificate').describe('Certificate of the gateway, PEM.'),
      keyFile: file('a PEM file with the private key').describe('Private key of the gateway, PEM.'),
      caFile: file('a PEM file with certificates')
        .optional()
        .describe('Clients must show a certificate of this authority, PEM.'),
    })
    .optional(),
  apiKeys: z
    .array(secret())
    .default([])
    .describe('Secret. Clients must bring one of them as a bearer token; with none anybody may ask.'),
  adminToken: secret()
    .optional()
    .describe('Secret. For all routes under /eldr; without it they answer on loopback only.'),
  maxBodyBytes: whole(1024, 1024 * MIB)
    .default(32 * MIB)
    .describe('Largest request body.'),
  maxHeaderBytes: whole(1024, MIB).default(16_384).describe('All headers of a request together.'),
  headersTimeoutMs: ms().default(10_000).describe('A client must have sent its headers within this time.'),
  bodyTimeoutMs: ms().default(60_000).describe('A client must have sent its whole request within this time.'),
  clientStallMs: ms()
    .default(60_000)
    .describe('A client that takes no byte for so long while there are some for it is let go.'),
  keepAliveMs: ms().default(5_000).describe('An idle connection of a client is kept so long.'),
  shutdownGraceMs: ms(0)
    .default(30_000)
    .describe('Streams may go on so long after SIGTERM. Must be less than the orchestrator’s own grace.'),
})

/** As the configuration has them, and the file that discovery follows. */
const lists = {
  prefill: z
    .array(z.union([url(), prefillWorker]))
    .default([])
    .describe('Prefill workers, each a URL or an object.'),
  decode: z
    .array(z.union([url(), decodeWorker]))
    .default([])
    .describe('Decode workers, each a URL or an object. The k-th has cluster k of the artifact.'),
}
export const workerListsSchema = z.strictObject(lists)

const workers = z.strictObject({
  engine: z.enum(['vllm-nixl']).default('vllm-nixl').describe('How prefill hands over to decode.'),
  ...lists,
  ranks: ranks().describe(
    'Data-parallel engines of each server that says nothing else, found by discovery or named: one worker for each. 1, or none: no rank is sent.',
  ),
  prefillRanks: ranks().describe('The same for prefill workers alone, in place of ranks.'),
  decodeRanks: ranks().describe('The same for decode workers alone, in place of ranks.'),
  apiKey: secret().optional().describe('Secret. Sent to workers as a bearer token in place of the client’s.'),
  tls: z
    .strictObject({
      caFile: file('a PEM file with certificates')
        .optional()
        .describe('Authority of the workers’ certificates, PEM.'),
      certFile: file('a PEM file with the certificate')
        .optional()
        .describe('Certificate that is shown to workers, PEM.'),
      keyFile: file('a PEM file with the private key').optional().describe('Its private key, PEM.'),
      insecure: z.boolean().optional().describe('Takes any certificate of a worker. For trials only.'),
    })
    .optional(),
  idleConnectionMs: ms()
    .default(4_000)
    .describe(
      'An idle connection to a worker is kept so long; must be less than the worker keeps it (uvicorn: 5000).',
    ),
})

const dnsName = () => address(DNS_EXAMPLE, wrongDnsTarget)
/** As Kubernetes has labels: KEY=VALUE, the key maybe with a prefix. */
const label = () =>
  text(
    'a label such as app=vllm, one in each item',
    /^([a-z\d.-]{1,253}\/)?[A-Za-z\d]([\w.-]{0,61}[A-Za-z\d])?=([A-Za-z\d]([\w.-]{0,61}[A-Za-z\d])?)?$/,
  )
const selector = (role: string) =>
  z
    .array(label())
    .default([])
    .describe(
      `Labels of the EndpointSlices of ${role} workers, KEY=VALUE each; they must have all of them. A service’s labels are those of its slices.`,
    )

const discovery = z.strictObject({
  removeAfterMs: ms(0)
    .default(30_000)
    .describe(
      'A worker that is no longer found, or not ready, gets no new requests at once; it is removed after this time, when its last request has ended.',
    ),
  retryMs: ms()
    .default(1_000)
    .describe('Wait after a look that failed; doubled each time, at most 30 s, and varied by chance.'),
  file: z
    .strictObject({
      path: file('a YAML or JSON file with the lists prefill and decode').describe(
        'File with the lists prefill and decode, as under workers. It is followed.',
      ),
      pollMs: ms()
        .default(5_000)
        .describe('It is looked at so often beside being watched, for file systems that tell of nothing.'),
    })
    .optional(),
  dns: z
    .strictObject({
      prefill: dnsName().optional().describe(`Name of the prefill workers, such as ${DNS_EXAMPLE}.`),
      decode: dnsName().optional().describe('Name of the decode workers.'),
      server: text('an address such as 10.96.0.10 or [fd00::10]:53')
        .refine(isDnsServer, { error: 'expected an address such as 10.96.0.10 or [fd00::10]:53' })
        .optional()
        .describe('DNS server, with a port if it is not 53; those of the machine unless told.'),
      family: z
        .enum(['auto', 'ipv4', 'ipv6'])
        .default('auto')
        .describe('auto: IPv6 addresses are used where a name has no IPv4 ones.'),
      intervalMs: ms()
        .default(10_000)
        .describe('Names are looked up so often; sooner where their records live shorter.'),
    })
    .optional(),
  kubernetes: z
    .strictObject({
      enabled: z.boolean().default(false).describe('Follow EndpointSlices of Kubernetes.'),
      prefillSelector: selector('prefill'),
      decodeSelector: selector('decode'),
      namespace: text('the name of a namespace', /^[a-z\d]([a-z\d-]{0,61}[a-z\d])?$/)
        .optional()
        .describe('Namespace to follow; all of them unless told, which needs a ClusterRole.'),
      port: whole(1, 65_535)
        .optional()
        .describe('Port of the workers; that of the slice unless told (the one named http, else the first).'),
      scheme: z.enum(['http', 'https']).default('http').describe('How workers are spoken to.'),
      apiUrl: address('https://10.0.0.1:6443', wrongApiUrl)
        .optional()
        .describe('Address of the API; in a pod that of the cluster unless told.'),
      tokenFile: file('a file with a token')
        .optional()
        .describe('Token for the API, read anew for each request; the service account’s in a pod.'),
      caFile: file('a PEM file with certificates')
        .optional()
        .describe('Authority of the API’s certificate, PEM; the service account’s in a pod.'),
      silentMs: ms()
        .default(120_000)
        .describe(
          'A watch on which nothing comes for so long is begun anew. Servers send a bookmark each minute.',
        ),
    })
    .optional(),
})

const routing = z.strictObject({
  policy: spellings(POLICIES)
    .optional()
    .describe(
      `Decode policy. Default: ${defaultPolicy(true)} with an artifact, ${defaultPolicy(false)} without.`,
    ),
  prefillPolicy: spellings(PREFILL_POLICIES).default(DEFAULT_PREFILL_POLICY).describe('Prefill policy.'),
  tau: z
    .number()
    .min(0)
    .max(MAX_TAU)
    .default(0.1)
    .describe('Locality band of eldr: workers whose cosine is so much below the best still count.'),
  artifact: file('an artifact of `eldr fit`')
    .optional()
    .describe('Artifact of `eldr fit`; eldr and domain need it, union predicts better with it.'),
  profile: text('a name of profiles/ or the path of a .json file')
    .optional()
    .describe('Cost profile of union: a name under profiles/ or a path.'),
  prefixTokens: whole(1, 1_000_000)
    .default(256)
    .describe('Leading tokens of a prompt (4 bytes of text count as one) that prefix_hash looks at.'),
  prefixLoadFactor: z
    .number()
    .min(1)
    .max(1000)
    .default(1.25)
    .describe('prefix_hash looks elsewhere when a worker has so many times the average load.'),
  minCovered: z
    .number()
    .min(0)
    .max(1)
    .default(0.5)
    .describe('A hand-off whose counts cover less of the prompt than this is routed by load.'),
  refit: z
    .enum(['auto', 'off'])
    .default('auto')
    .describe('When there are more or fewer decode workers than clusters: fit anew for them, or leave it.'),
  reuseTokenIds: z
    .boolean()
    .default(false)
    .describe('Hand the token ids of a chat from prefill to decode, so that its template runs once.'),
})

const limits = z.strictObject({
  maxConcurrentRequests: whole(0, 1_000_000)
    .default(4096)
    .describe('Requests in the gateway at once; more wait in the queue. 0 is no limit.'),
  queueSize: whole(0, 1_000_000)
    .default(1024)
    .describe('Requests that may wait; more are answered with 429.'),
  queueTimeoutMs: ms().default(30_000).describe('Longest wait in the queue.'),
  maxChoices: whole(1, 10_000).default(128).describe('Choices × prompts that one request may ask for.'),
})

const timeouts = z.strictObject({
  connectMs: ms().default(2_000).describe('Until a connection to a worker stands.'),
  prefillMs: ms().default(120_000).describe('From dispatch to the whole answer of the prefill leg.'),
  firstTokenMs: ms()
    .default(60_000)
    .describe('From dispatch of the decode leg to the first byte of its body.'),
  betweenTokensMs: ms().default(30_000).describe('Between two pieces of a decode stream.'),
  requestMs: ms().default(1_800_000).describe('All of a request.'),
})

const retries = z.strictObject({
  max: whole(0, 10).default(2).describe('Tries of each leg beyond the first.'),
  budgetShare: z
    .number()
    .min(0)
    .max(1)
    .default(0.2)
    .describe('Retries may be this share of requests, so that an outage is not made worse.'),
  backoffMs: ms(0).default(50).describe('Wait before the first retry.'),
})

const lease = z.strictObject({
  durationMs: ms().default(30_000).describe('kv_lease_duration of the prefill workers.'),
  usableShare: share().default(0.6).describe('A hand-off older than this share of the lease is not used.'),
})

const breaker = z.strictObject({
  consecutiveFailures: whole(1, 1000)
    .default(5)
    .describe('A worker is taken out after so many failures in a row.'),
  windowMs: ms().default(30_000).describe('Window over which the share of failures counts.'),
  windowRequests: whole(1, 1_000_000)
    .default(20)
    .describe('Requests that must have ended within the window for the share to count.'),
  windowFailureShare: share()
    .default(0.5)
    .describe('Share of failures within the window that takes a worker out.'),
  openMs: ms().default(10_000).describe('Then one request is let through to see.'),
})

const health = z.strictObject({
  path: text('a path that begins with /, such as /health', /^\/[^\s#]*$/)
    .default('/health')
    .describe('Path that workers are asked at.'),
  intervalMs: ms().default(5_000).describe('Between two checks of a worker.'),
  timeoutMs: ms().default(2_000).describe('A later answer is a failure.'),
  failures: whole(1, 1000).default(2).describe('Failures in a row that take a worker out.'),
  successes: whole(1, 1000).default(1).describe('Successes in a row that bring it back.'),
})

const traces = z.strictObject({
  endpoint: address(ENDPOINT_EXAMPLE, wrongEndpoint)
    .optional()
    .describe(
      `Traces go to this collector by OTLP over HTTP, such as ${ENDPOINT_EXAMPLE}; /v1/traces is put behind it. Without it there are none.`,
    ),
  headers: z
    .array(
      text('NAME=VALUE, such as authorization=Bearer KEY', /^[\w!#$%&'*+.^`|~-]+=[\x20-\x7e]+$/)
        .refine(value => value !== MASK, {
          error: 'this is a masked secret, as `eldr config print` shows it: put in the real one',
        })
        .meta({ writeOnly: true }),
    )
    .default([])
    .describe('Secret. Headers of each request to the collector, each NAME=VALUE.'),
  serviceName: text('1 to 255 visible characters', /^[\x20-\x7e]{1,255}$/)
    .default('eldr')
    .describe('service.name of the traces.'),
  sampleRatio: z
    .number()
    .min(0)
    .max(1)
    .default(1)
    .describe(
      'Share of requests that are traced; those whose caller sent a traceparent are traced as that says.',
    ),
  batchSpans: whole(1, 10_000).default(256).describe('Spans of one export, about.'),
  everyMs: ms().default(1_000).describe('An export with fewer spans goes out after this time.'),
  queueSpans: whole(1, 1_000_000)
    .default(8_192)
    .describe('Spans that may wait for the collector; traces beyond are dropped and counted.'),
  timeoutMs: ms().default(10_000).describe('The collector must have answered an export within this time.'),
  flushMs: ms(0)
    .default(3_000)
    .describe('How long the last traces may take when the gateway ends, after its streams have.'),
})

const observe = z.strictObject({
  logLevel: z.enum(LOG_LEVELS).default('info').describe('What is logged.'),
  logFormat: z
    .enum(['auto', 'json', 'pretty'])
    .default('auto')
    .describe('auto: for people on a terminal, a JSON object on each line elsewhere.'),
  debugHeaders: z
    .boolean()
    .default(false)
    .describe(
      'X-Eldr-* headers, which name workers, on every answer; otherwise for whoever may use the admin API and asks: `X-Eldr-Debug: TOKEN`, or `1` from the machine itself where no token is set.',
    ),
  decisionsKept: whole(0, 100_000)
    .default(256)
    .describe('Decisions kept for /eldr/decisions, and requests for /eldr/requests.'),
  dashboard: z
    .enum(['admin', 'open', 'off'])
    .default('admin')
    .describe(
      'Dashboard at /dashboard: for whoever may use the admin API; open: anybody may look, changes still need the token; off: none.',
    ),
  traces: traces.prefault({}),
})

export const fileSchema = z.strictObject({
  $schema: z
    .string({ error: 'the address of a JSON Schema' })
    .optional()
    .describe('For editors; ELDR does not look at it.'),
  server: server.prefault({}),
  workers: workers.prefault({}),
  discovery: discovery.prefault({}),
  routing: routing.prefault({}),
  replicas: replicas.prefault({}),
  limits: limits.prefault({}),
  timeouts: timeouts.prefault({}),
  retries: retries.prefault({}),
  lease: lease.prefault({}),
  breaker: breaker.prefault({}),
  health: health.prefault({}),
  observe: observe.prefault({}),
})

/** The file with its defaults filled in. */
export type FileForm = z.output<typeof fileSchema>
