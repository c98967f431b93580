/** Checks that a schema cannot express: combinations of values. */
import { descriptorOf, needsArtifact } from '../../../policy/decode-policy.ts'
import type { Path } from '../paths.ts'
import type { FileForm } from '../schema/schema.ts'
import { checkDiscovery, findsWorkers } from './discovery-checks.ts'
import { policyOf } from '../settle.ts'

/**
 * `path`: the value with the problem. `about`: other values involved; if one is invalid by itself, only that
 * is reported.
 */
export interface Finding {
  readonly path?: Path
  readonly about?: readonly Path[]
  readonly text: string
  readonly warning?: true
}

/** uvicorn closes idle connections after this time; a request sent at that moment fails. */
const UVICORN_KEEP_ALIVE_MS = 5000

export function* checkTogether({
  server,
  workers,
  routing,
  discovery,
  replicas,
  observe,
}: FileForm): Generator<Finding> {
  const policy = policyOf(routing)
  const [policyPath, artifactPath] = [
    ['routing', 'policy'],
    ['routing', 'artifact'],
  ]
  if (needsArtifact(descriptorOf(policy)) && routing.artifact === undefined)
    yield {
      path: policyPath,
      about: [artifactPath],
      text: `routing.policy: ${policy} needs an artifact: set routing.artifact (--artifact)`,
    }
  for (const [at, name] of routing.shadow.entries()) {
    const shadow = policyOf({ policy: name })
    if (needsArtifact(descriptorOf(shadow)) && routing.artifact === undefined)
      yield {
        path: ['routing', 'shadow', at],
        about: [artifactPath],
        text: `routing.shadow: ${shadow} needs an artifact: set routing.artifact (--artifact)`,
      }
  }
  const { certFile, keyFile } = workers.tls ?? {}
  if ((certFile === undefined) !== (keyFile === undefined)) {
    const [has, lacks] = keyFile === undefined ? ['certFile', 'keyFile'] : ['keyFile', 'certFile']
    yield {
      path: ['workers', 'tls', has],
      about: [['workers', 'tls', lacks]],
      text: `workers.tls.${has} without workers.tls.${lacks}: set both`,
    }
  }
  const [adminPath, keysPath] = [
    ['server', 'adminToken'],
    ['server', 'apiKeys'],
  ]
  if (server.adminToken !== undefined && server.apiKeys.includes(server.adminToken))
    yield {
      path: adminPath,
      about: [keysPath],
      text: 'server.adminToken is one of server.apiKeys: any client could use the admin API',
    }
  if (server.metricsPort !== undefined && server.metricsPort === server.port)
    yield {
      path: ['server', 'metricsPort'],
      about: [['server', 'port']],
      text: `server.metricsPort is server.port, ${server.port}: choose another port`,
    }
  if (server.headersTimeoutMs > server.bodyTimeoutMs)
    yield {
      path: ['server', 'headersTimeoutMs'],
      about: [['server', 'bodyTimeoutMs']],
      text: `server.headersTimeoutMs ${server.headersTimeoutMs} is more than server.bodyTimeoutMs ${server.bodyTimeoutMs}, which includes it`,
    }
  if (workers.idleConnectionMs >= UVICORN_KEEP_ALIVE_MS)
    yield {
      path: ['workers', 'idleConnectionMs'],
      text: `workers.idleConnectionMs ${workers.idleConnectionMs}: uvicorn closes idle connections after ${UVICORN_KEEP_ALIVE_MS}, and a request sent at that moment fails`,
      warning: true,
    }
  const { endpoint, headers } = observe.traces
  const [endpointPath, headersPath] = [
    ['observe', 'traces', 'endpoint'],
    ['observe', 'traces', 'headers'],
  ]
  if (endpoint !== undefined && new URL(endpoint).port === '4317')
    yield {
      path: endpointPath,
      text: 'observe.traces.endpoint: port 4317 is for gRPC; OTLP over HTTP uses 4318',
      warning: true,
    }
  if (endpoint === undefined && headers.length > 0)
    yield {
      path: headersPath,
      about: [endpointPath],
      text: 'observe.traces.headers without observe.traces.endpoint: nothing is sent',
      warning: true,
    }
  if (workers.tls?.insecure)
    yield {
      path: ['workers', 'tls', 'insecure'],
      text: 'workers.tls.insecure: certificates of workers are not checked',
      warning: true,
    }
  for (const role of ['prefill', 'decode'] as const)
    if (workers[role].length === 0 && !findsWorkers(discovery, role))
      yield {
        about: [['workers', role]],
        text: `no ${role} workers: set workers.${role} (--${role})`,
        warning: true,
      }
  const { url, publishMs, leaseMs, unionMs } = replicas
  if (3 * Math.max(publishMs, unionMs) > leaseMs) {
    const name = publishMs >= unionMs ? 'publishMs' : 'unionMs'
    yield {
      path: ['replicas', 'leaseMs'],
      about: [['replicas', name]],
      text: `replicas.leaseMs ${leaseMs} is less than three times replicas.${name} ${replicas[name]}: leases would expire during normal operation`,
    }
  }
  if (url === undefined && replicas.id !== undefined)
    yield {
      path: ['replicas', 'id'],
      about: [['replicas', 'url']],
      text: 'replicas.id without replicas.url has no effect',
      warning: true,
    }
  yield* checkDiscovery(discovery)
}
