/** A cluster that a sweep runs on: an address to send to, and a policy that can be changed. Here: a gateway that runs already. */
import { EldrError } from '../errors.ts'
import { addressOf, fetchText } from './endpoint.ts'

export interface Cluster {
  readonly url: string
  /** `eldr`, or `eldr@0.2` with a band. What is in flight stays where it is. */
  setPolicy(name: string): Promise<void>
  /** Takes from all workers what they keep of earlier prompts. False where a worker cannot. */
  clearPrefixCaches?(): Promise<boolean>
  /** Ends what was started for the sweep. */
  stop(): Promise<void>
}

export interface AttachedCluster extends Cluster {
  /** Such as 2P4D: the workers that the gateway has. */
  readonly topology: string
  /** Of the artifact that it routes by; undefined without one. */
  readonly artifactSha256: string | undefined
}

export interface AdminAccess {
  readonly url: string
  /** Not needed on the gateway's own machine where it has none. */
  readonly adminToken?: string
  readonly insecure?: boolean
}

interface SeenWorker {
  readonly role: 'prefill' | 'decode'
  readonly url: string
  readonly state: string
}

export async function attachCluster({ url, adminToken, insecure }: AdminAccess): Promise<AttachedCluster> {
  const { origin, root } = addressOf(url)
  const admin = `${origin}${root.replace(/\/v\d+$/, '')}/eldr`
  const access = { ...(adminToken !== undefined && { apiKey: adminToken }), ...(insecure && { insecure }) }

  async function call(method: 'GET' | 'PUT', path: string, body?: object): Promise<unknown> {
    const { status, text } = await fetchText(access, method, `${admin}${path}`, body)
    if (status === 200) return JSON.parse(text)
    throw new EldrError('ELDR_ENDPOINT_FAILED', {
      found: `status ${status} from ${method} ${admin}${path}: ${text.slice(0, 300)}`,
      expected: 'the admin API of `eldr serve`',
      ...((status === 401 || status === 403) && {
        todo: 'Give the gateway’s token with --admin-token or ELDR_ADMIN_TOKEN.',
      }),
    })
  }

  const workers = async () =>
    ((await call('GET', '/workers')) as { workers: SeenWorker[] }).workers.filter(
      ({ state }) => state !== 'leaving',
    )
  const there = await workers()
  const { routing } = (await call('GET', '/config')) as { routing: { artifact?: { sha256: string } } }
  const count = (role: SeenWorker['role']) => there.filter(worker => worker.role === role).length
  return {
    url,
    topology: `${count('prefill')}P${count('decode')}D`,
    artifactSha256: routing.artifact?.sha256,
    async setPolicy(name) {
      const [policy, tau] = name.split('@')
      await call('PUT', '/policy', { policy, ...(tau !== undefined && { tau: Number(tau) }) })
    },
    async clearPrefixCaches() {
      // Data-parallel ranks are several workers at one address, which clears the caches of all of them.
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
