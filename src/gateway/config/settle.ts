/** From the file with its defaults to the settings: one spelling of each name, an id and a cluster for each worker, a policy. */
import type { PolicyName } from '../../policy/decode-policy.ts'
import type { PrefillPolicyName } from '../../policy/prefill-policy.ts'
import { addressOf, originOf } from './origin.ts'
import type { FileForm } from './schema.ts'
import type { Settings, WorkerSetting } from './settings.ts'

export type WorkerForm = FileForm['workers']['decode'][number]

export function settle(form: FileForm): Settings {
  const { server, workers, discovery, replicas, limits, timeouts, retries, lease, breaker, health, observe } = form
  const { policy, prefillPolicy, ...routing } = form.routing
  return {
    server,
    workers: {
      ...workers,
      prefill: workers.prefill.map(workerOf),
      decode: workers.decode.map((worker, place) => {
        const cluster = typeof worker === 'string' ? undefined : worker.cluster
        return { ...workerOf(worker), cluster: cluster ?? place }
      }),
    },
    discovery,
    routing: {
      policy: policyOf({ policy, artifact: routing.artifact }),
      prefillPolicy: underscored(prefillPolicy) as PrefillPolicyName,
      ...routing,
    },
    replicas,
    limits,
    timeouts,
    retries,
    lease,
    breaker,
    health,
    observe,
  }
}

export function policyOf({ policy, artifact }: Pick<FileForm['routing'], 'policy' | 'artifact'>): PolicyName {
  if (policy === undefined) return artifact === undefined ? 'union' : 'eldr'
  return underscored(policy) as PolicyName
}

export function workerOf(worker: WorkerForm): WorkerSetting {
  const { url, id = addressOf(url) } = typeof worker === 'string' ? { url: worker } : worker
  return { url: originOf(url), id }
}

const underscored = (name: string) => name.replaceAll('-', '_')
