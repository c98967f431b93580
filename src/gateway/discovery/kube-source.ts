/** Discovery by Kubernetes EndpointSlices, with one selector for prefill and one for decode. */
import type { Role } from '../../cluster/worker.ts'
import type { KubernetesDiscovery } from '../config/settings.ts'
import { type Problem, type DiscoveredWorker, type Source, type OnReport, deduplicate } from './source.ts'
import { type KubeAccess, KubeClient } from './kube-client.ts'
import { SliceWatch } from './slice-watch.ts'
import { workersIn } from './slices.ts'

interface Seen {
  found?: readonly DiscoveredWorker[]
  notes: readonly string[]
  problem?: Problem
}

export class KubeSource implements Source {
  readonly #onReport: OnReport
  readonly #client: KubeClient
  readonly #watches: readonly SliceWatch[]
  readonly #seen: Record<Role, Seen> = { prefill: { notes: [] }, decode: { notes: [] } }
  #soon: NodeJS.Immediate | undefined

  constructor(settings: KubernetesDiscovery, access: KubeAccess, retryMs: number, onReport: OnReport) {
    this.#onReport = onReport
    this.#client = new KubeClient(access)
    const { namespace, port, scheme, silentMs } = settings
    this.#watches = (['prefill', 'decode'] as const).map(role => {
      const labels = settings[`${role}Selector`]
      const options = { role, scheme, port, manyNamespaces: namespace === undefined }
      return new SliceWatch({
        client: this.#client,
        labels,
        retryMs,
        silentMs,
        namespace,
        changed: (slices, notes) => {
          // A service scaled to zero still has a slice. Without any, the service is gone or the labels are
          // wrong.
          if (slices.size === 0)
            this.#saw(role, {
              problem: { reason: 'empty', text: `no EndpointSlice has the labels ${labels.join(',')}` },
              notes,
            })
          else {
            const read = workersIn(slices.values(), options)
            this.#saw(role, { found: read.found, notes: [...notes, ...read.notes] })
          }
        },
        failed: ({ problem }) => this.#saw(role, { problem, notes: this.#seen[role].notes }),
      })
    })
  }

  stop(): void {
    clearImmediate(this.#soon)
    for (const watch of this.#watches) watch.stop()
    this.#client.close()
  }

  /** Keeps the workers found before if the lookup failed. */
  #saw(role: Role, seen: Seen): void {
    this.#seen[role] = { ...seen, found: seen.found ?? this.#seen[role].found }
    this.#soon ??= setImmediate(() => {
      this.#soon = undefined
      this.#report()
    })
  }

  #report(): void {
    const { prefill, decode } = this.#seen
    const { found, notes } = deduplicate([...(prefill.found ?? []), ...(decode.found ?? [])])
    const texts = new Map(
      [prefill.problem, decode.problem].flatMap(problem =>
        problem === undefined ? [] : [[problem.text, problem] as const],
      ),
    )
    const [first] = texts.values()
    this.#onReport({
      found: prefill.found !== undefined || decode.found !== undefined ? found : undefined,
      notes: [...prefill.notes, ...decode.notes, ...notes],
      problem: first && { reason: first.reason, text: [...texts.keys()].join('; ') },
    })
  }
}
