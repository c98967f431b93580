/**
 * Normalises a validated file to settings: one spelling per policy name, an id per worker, a cluster per
 * decode worker, a policy.
 */
import type { PolicyName } from '../../policy/decode-policy.ts'
import type { PrefillPolicyName } from '../../policy/prefill-policy.ts'
import type { FileForm } from './schema/schema.ts'
import type { Settings } from './settings.ts'
import { defaultRanks, workersOf } from './worker-form.ts'

export function settle(form: FileForm): Settings {
  const { server, workers, discovery, conversations, adapt, replicas, limits, timeouts, retries, resume } =
    form
  const { lease, breaker, health, observe } = form
  const { policy, shadow, prefillPolicy, ...routing } = form.routing
  return {
    server,
    workers: {
      ...workers,
      prefill: workers.prefill.flatMap(worker => workersOf(worker, defaultRanks(workers, 'prefill'))),
      decode: workers.decode
        .flatMap(worker => workersOf(worker, defaultRanks(workers, 'decode')))
        .map((worker, place) => ({ ...worker, cluster: worker.cluster ?? place })),
    },
    discovery,
    routing: {
      policy: policyOf({ policy }),
      shadow: [...new Set(shadow.map(name => policyOf({ policy: name })))],
      prefillPolicy: underscored(prefillPolicy) as PrefillPolicyName,
      ...routing,
    },
    conversations,
    adapt,
    replicas,
    limits,
    timeouts,
    retries,
    resume,
    lease,
    breaker,
    health,
    observe,
  }
}

export function policyOf({ policy }: Pick<FileForm['routing'], 'policy'>): PolicyName {
  return underscored(policy) as PolicyName
}

const underscored = (name: string) => name.replaceAll('-', '_')
