/** Requests to the API of Kubernetes. Token and authority are read anew for each, since both are replaced while a pod runs. */
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

/** Where the API is and how it is spoken to. Throws where nothing says so. */
export function kubeAccess(
  { apiUrl, tokenFile, caFile }: Pick<KubernetesDiscovery, 'apiUrl' | 'tokenFile' | 'caFile'>,
  env: Readonly<Record<string, string | undefined>>,
): KubeAccess {
  const files = { ...(tokenFile !== undefined && { tokenFile }), ...(caFile !== undefined && { caFile }) }
  if (apiUrl !== undefined) return { url: apiUrl.replace(/\/$/, ''), ...files }
  const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port = '443' } = env
  if (host === undefined || host === '')
    throw new EldrError('ELDR_CONFIG_INVALID', {
      found: 'service discovery outside of a cluster',
      expected: 'KUBERNETES_SERVICE_HOST, which every pod has',
      todo: 'Run in a pod, or set discovery.kubernetes.apiUrl (--service-discovery-api-url); docs/guides/discovery.md says more.',
    })
  const url = `https://${host.includes(':') ? `[${host}]` : host}:${port}`
  return { url, tokenFile: `${ACCOUNT}/token`, caFile: `${ACCOUNT}/ca.crt`, ...files }
}

/** How an answer that is not 200 ends a look. */
export class KubeFailure extends LookupFailure {
  readonly status: number

  constructor(status: number, path: string) {
    const [reason, words] =
      status === 401
        ? (['refused', 'does not know the token'] as const)
        : status === 403
          ? (['refused', 'does not let this service account list and watch endpointslices'] as const)
          : (['failed', `answers ${status}`] as const)
    super(reason, `the Kubernetes API ${words} (${path.split('?', 1)[0]})`)
    this.status = status
  }
}

/** What a watch needs of it. */
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

  /** Body of a 200. Throws a LookupFailure otherwise. `silentMs`: longest wait for a piece of it. */
  async get(path: string, silentMs: number, signal: AbortSignal): Promise<AsyncIterable<Buffer>> {
    const { url, tokenFile, caFile } = this.#access
    const token = tokenFile === undefined ? undefined : (await textOf(tokenFile, 'token')).trim()
    if (token !== undefined && !/^[\x21-\x7e]+$/.test(token))
      throw new LookupFailure('refused', `there is no token in ${tokenFile}`)
    const dispatcher = this.#agentFor(caFile === undefined ? undefined : await textOf(caFile, 'authority'))
    let answer: Dispatcher.ResponseData
    try {
      answer = await request(`${url}${path}`, {
        dispatcher,
        signal,
        headers: {
          accept: 'application/json',
          ...(token !== undefined && { authorization: `Bearer ${token}` }),
        },
        headersTimeout: HEADERS_MS,
        bodyTimeout: silentMs,
      })
    } catch (cause) {
      throw unreachable(cause)
    }
    if (answer.statusCode === 200) return answer.body
    await answer.body.dump().catch(() => undefined)
    throw new KubeFailure(answer.statusCode, path)
  }

  close(): void {
    void this.#agent?.destroy().catch(() => undefined)
  }

  #agentFor(ca: string | undefined): Agent {
    if (this.#agent !== undefined && this.#ca === ca) return this.#agent
    // What runs on the old connections may end there.
    void this.#agent?.close().catch(() => undefined)
    this.#ca = ca
    return (this.#agent = new Agent({ connect: { timeout: CONNECT_MS, ...(ca !== undefined && { ca }) } }))
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
