/**
 * The cluster of a sweep: a URL for requests and a policy that can be changed. This one is a running gateway.
 */
import { EldrError } from '../errors.ts'
import { addressOf, fetchText } from './endpoint.ts'

export interface Cluster {
  readonly url: string
  /** `eldr`, or `eldr@0.2` with a τ. In-flight requests stay where they are. */
  setPolicy(name: string): Promise<void>
  /** Clears the prefix caches of all workers. False if a worker cannot do that. */
  clearPrefixCaches?(): Promise<boolean>
  /** Stops all processes that were started for the sweep. */
  stop(): Promise<void>
}

export interface AttachedCluster extends Cluster {
  /** The gateway's workers, such as 2P4D. */
  readonly topology: string
  /** Hash of the gateway's artifact; undefined without one. */
  readonly artifactSha256: string | undefined
}

export interface AdminAccess {
  readonly url: string
  /** Not needed on the gateway's machine if no token is configured. */
  readonly adminToken?: string
  readonly insecure?: boolean
}

interface ListedWorker {
  readonly role: 'prefill' | 'decode'
  readonly url: string
  readonly state: string
}

export async function attachCluster({ url, adminToken, insecure }: AdminAccess): Promise<AttachedCluster> {
  const { origin, root } = addressOf(url)
  const admin = `${origin}${root.replace(/\/v\d+$/, '')}/eldr`
  const access = { apiKey: adminToken, insecure }

  async function call(method: 'GET' | 'PUT', path: string, body?: object): Promise<unknown> {
    const { status, text } = await fetchText(access, method, `${admin}${path}`, body)
    if (status === 200) return JSON.parse(text)
    throw new EldrError('ELDR_ENDPOINT_FAILED', {
      found: `status ${status} from ${method} ${admin}${path}: ${text.slice(0, 300)}`,
      expected: 'the admin API of `eldr serve`',
      todo:
        status === 401 || status === 403
          ? 'Pass the gateway’s token with --admin-token or ELDR_ADMIN_TOKEN.'
          : undefined,
    })
  }

  const workers = async () =>
    ((await call('GET', '/workers')) as { workers: ListedWorker[] }).workers.filter(
      ({ state }) => state !== 'leaving',
    )
  const listed = await workers()
  const { routing } = (await call('GET', '/config')) as { routing: { artifact?: { sha256: string } } }
  const count = (role: ListedWorker['role']) => listed.filter(worker => worker.role === role).length
  return {
    url,
    topology: `${count('prefill')}P${count('decode')}D`,
    artifactSha256: routing.artifact?.sha256,
    async setPolicy(name) {
      const [policy, tau] = name.split('@')
      await call('PUT', '/policy', { policy, tau: tau === undefined ? undefined : Number(tau) })
    },
    async clearPrefixCaches() {
      // Data-parallel ranks are several workers with one URL; one call clears the caches of all of them.
      const urls = new Set((await workers()).map(({ url: address }) => address))
      const cleared = [...urls].map(address =>
        fetchText({}, 'POST', `${address}/reset_prefix_cache`).then(
          ({ status }) => status === 200,
          () => false,
        ),
      )
      return (await Promise.all(cleared)).every(Boolean)
    },
    stop: () => Promise.resolve(),
  }
}
