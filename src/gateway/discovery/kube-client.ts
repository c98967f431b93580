/**
 * Client for the Kubernetes API. It reads token and CA again for each request, since both are rotated while a
 * pod runs.
 */
import { readFile } from 'node:fs/promises'
import { Agent, type Dispatcher, request } from 'undici'
import { EldrError } from '../../errors.ts'
import type { KubernetesDiscovery } from '../config/settings.ts'
import { LookupFailure } from './source.ts'

const ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount'
const CONNECT_MS = 5_000
const HEADERS_MS = 30_000

export interface KubeAccess {
  readonly url: string
  readonly tokenFile?: string
  readonly caFile?: string
}

/** Returns URL and credentials of the API. Throws if neither the settings nor the environment have them. */
export function kubeAccess(
  { apiUrl, tokenFile, caFile }: Pick<KubernetesDiscovery, 'apiUrl' | 'tokenFile' | 'caFile'>,
  env: Readonly<Record<string, string | undefined>>,
): KubeAccess {
  if (apiUrl !== undefined) return { url: apiUrl.replace(/\/$/, ''), tokenFile, caFile }
  const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port = '443' } = env
  if (host === undefined || host === '')
    throw new EldrError('ELDR_CONFIG_INVALID', {
      found: 'service discovery outside of a Kubernetes cluster',
      expected: 'KUBERNETES_SERVICE_HOST, which is set in every pod',
      todo: 'Run in a pod, or set discovery.kubernetes.apiUrl (--service-discovery-api-url); see docs/guides/discovery.md.',
    })
  const url = `https://${host.includes(':') ? `[${host}]` : host}:${port}`
  return { url, tokenFile: tokenFile ?? `${ACCOUNT}/token`, caFile: caFile ?? `${ACCOUNT}/ca.crt` }
}

/** A response other than 200. */
export class KubeFailure extends LookupFailure {
  readonly status: number

  constructor(status: number, path: string) {
    const [reason, words] =
      status === 401
        ? (['refused', 'rejects the token'] as const)
        : status === 403
          ? (['refused', 'does not allow this service account list and watch endpointslices'] as const)
          : (['failed', `returned status ${status}`] as const)
    super(reason, `the Kubernetes API ${words} (${path.split('?', 1)[0]})`)
    this.status = status
  }
}

export interface KubeApi {
  get(path: string, silentMs: number, signal: AbortSignal): Promise<AsyncIterable<Buffer>>
}

export class KubeClient implements KubeApi {
  readonly #access: KubeAccess
  #agent: Agent | undefined
  #ca: string | undefined

  constructor(access: KubeAccess) {
    this.#access = access
  }

  /**
   * Returns the body of a 200 response; throws a LookupFailure otherwise. `silentMs`: max gap between chunks.
   */
  async get(path: string, silentMs: number, signal: AbortSignal): Promise<AsyncIterable<Buffer>> {
    const { url, tokenFile, caFile } = this.#access
    const token = tokenFile === undefined ? undefined : (await textOf(tokenFile, 'token')).trim()
    if (token !== undefined && !/^[\x21-\x7e]+$/.test(token))
      throw new LookupFailure('refused', `no valid token in ${tokenFile}`)
    const dispatcher = this.#agentFor(caFile === undefined ? undefined : await textOf(caFile, 'CA'))
    let response: Dispatcher.ResponseData
    try {
      response = await request(`${url}${path}`, {
        dispatcher,
        signal,
        headers: { accept: 'application/json', authorization: token && `Bearer ${token}` },
        headersTimeout: HEADERS_MS,
        bodyTimeout: silentMs,
      })
    } catch (cause) {
      throw unreachable(cause)
    }
    if (response.statusCode === 200) return response.body
    await response.body.dump().catch(() => undefined)
    throw new KubeFailure(response.statusCode, path)
  }

  close(): void {
    void this.#agent?.destroy().catch(() => undefined)
  }

  #agentFor(ca: string | undefined): Agent {
    if (this.#agent !== undefined && this.#ca === ca) return this.#agent
    // Running requests may finish on the old connections.
    void this.#agent?.close().catch(() => undefined)
    this.#ca = ca
    return (this.#agent = new Agent({ connect: { timeout: CONNECT_MS, ca } }))
  }
}

export function unreachable(cause: unknown): LookupFailure {
  const { code } = cause as NodeJS.ErrnoException
  return new LookupFailure(
    'unreachable',
    `the Kubernetes API cannot be reached (${code ?? 'unknown reason'})`,
    cause,
  )
}

async function textOf(file: string, what: string): Promise<string> {
  try {
    return await readFile(file, 'utf8')
  } catch (cause) {
    throw new LookupFailure(
      'unreadable',
      `the ${what} of the Kubernetes API cannot be read: ${file} (${(cause as NodeJS.ErrnoException).code})`,
      cause,
    )
  }
}
