/** What live recalibration is told about this gateway, and what it may do here. */
import type { Registry } from '../../cluster/registry.ts'
import type { ReplicaUpdates } from '../control/admin/admin-context.ts'
import type { EventLog } from '../control/dashboard/event-log.ts'
import type { Events } from '../observe/events.ts'
import type { Log } from '../observe/log/log.ts'
import type { Metrics } from '../observe/metrics/metrics.ts'
import { assignClusters } from '../routing/cluster-assignment.ts'
import type { Router } from '../routing/router.ts'
import type { RoutingControl } from '../routing/routing-control.ts'
import type { AdaptationEvent, AdaptationHost, AdaptationTarget } from './adaptation.ts'

export interface HostParts {
  readonly control: RoutingControl
  readonly router: Router
  readonly registry: Registry
  readonly events: Events
  readonly shown: EventLog
  readonly metrics: Metrics
  readonly log: Log
  readonly replicas?: Pick<ReplicaUpdates, 'loadedArtifact' | 'fetchArtifact'>
}

export function adaptationHost(parts: HostParts): AdaptationHost {
  const { control, registry, events, shown, metrics, log, replicas } = parts
  return {
    target: () => targetOf(parts),
    whyNoTarget() {
      const workers = control.decodeWorkers()
      if (control.loaded === undefined) return 'There is no artifact.'
      if (workers.length === 0) return 'There is no decode worker.'
      const result = assignClusters(workers, workers.length)
      return result.kind === 'impossible' ? `No refit is possible: ${result.why}.` : ''
    },
    running: () =>
      decodeViews(registry).reduce(
        (sum, { inflight, inflightElsewhere }) => sum + inflight + inflightElsewhere,
        0,
      ),
    isHeld: () => control.isHeld,
    async load(path, shownAs, assignment, hold) {
      const view = await control.load(path, shownAs, assignment)
      replicas?.loadedArtifact(view, path, { hold })
      return view.artifact!.sha256
    },
    fetch: async sha256 => replicas?.fetchArtifact(sha256),
    happened(event) {
      metrics.adaptEvents.inc({ event: event.kind })
      events.publish('adapt', event)
      shown.add('routing', control.policy, `adapt_${event.kind}`)
      const isBad = BAD.has(event.kind) || (event.kind === 'judged' && event.attempt.verdict === 'failed')
      log[isBad ? 'warn' : 'info'](event, wordsOf(event))
    },
  }
}

const BAD: ReadonlySet<AdaptationEvent['kind']> = new Set(['failed', 'rolled_back', 'skipped'])

const decodeViews = (registry: Registry) =>
  registry.views(performance.now()).filter(({ spec }) => spec.role === 'decode')

function targetOf({ control, router, registry }: HostParts): AdaptationTarget | undefined {
  const { loaded, policy, tau, assignment: assigned } = control.plan
  const workers = control.decodeWorkers()
  if (loaded === undefined || workers.length === 0) return undefined
  const result = assignClusters(workers, workers.length)
  if (result.kind === 'impossible') return undefined
  const { assignment } = result
  const ordered = workers.toSorted((a, b) => assignment.get(a.index)! - assignment.get(b.index)!)
  return {
    ...loaded,
    policy,
    tau,
    cost: control.cost,
    workers: ordered.map(({ index, fixed }) => ({ cluster: assigned.get(index), fixed })),
    assignment,
    assigned,
    serving: decodeViews(registry).flatMap(({ spec, state }) => (state === 'ready' ? spec.id : [])),
    inflight: () =>
      router.inflight().flatMap(({ request: { signature }, worker }) => {
        const place = assignment.get(worker)
        return signature === undefined || place === undefined ? [] : [{ worker: place, signature }]
      }),
  }
}

const percent = (share: number) => `${(100 * share).toFixed(1)} %`

function wordsOf(event: AdaptationEvent): string {
  switch (event.kind) {
    case 'drift':
      return 'adapt: live requests have drifted away from the artifact'
    case 'recovered':
      return 'adapt: live requests resemble the calibration again'
    case 'judged': {
      const { verdict, gain = 0, gainHalf = 0, judgedBy, problem } = event.attempt
      if (verdict === 'failed') return `adapt: refit failed: ${problem}`
      const found = `a refit should save ${percent(gain)} ± ${percent(gainHalf)} of a decode step (by ${judgedBy} decode counts)`
      if (verdict === 'no_gain') return `adapt: ${found}: not worth a swap`
      return verdict === 'swap'
        ? `adapt: ${found}: swapping`
        : `adapt: ${found}: POST /eldr/adapt/swap takes it`
    }
    case 'swapped':
      return 'adapt: swapped the artifact'
    case 'kept':
      return `adapt: the swap stays: ${event.why}`
    case 'undone':
      return 'adapt: swap undone'
    case 'rolled_back':
      return 'adapt: p99 TPOT is worse than before: swap rolled back'
    case 'failed':
      return `adapt: ${event.problem}`
    case 'skipped':
      return `adapt: skipped a file of its folder: ${event.problem}`
  }
}
