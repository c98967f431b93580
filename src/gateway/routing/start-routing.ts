/** Control and router from the settings, and who hears of what they do. */
import type { Registry } from '../../cluster/registry.ts'
import { stepParts } from '../../cost/profile.ts'
import { loadProfile } from '../../cost/profile-file.ts'
import { descriptorOf, type PolicyOptions, readsCounts } from '../../policy/decode-policy.ts'
import type { Events } from '../observe/events.ts'
import type { Insight } from '../observe/insight/insight.ts'
import type { LiveFeed } from '../control/dashboard/live-feed.ts'
import type { Settings } from '../config/settings.ts'
import type { Log, RateLimitedLog } from '../observe/log/log.ts'
import type { Metrics } from '../observe/metrics/metrics.ts'
import { JOBS } from './fit-jobs.ts'
import { type RoutingChange, RoutingControl } from './routing-control.ts'
import type { LoadedArtifact } from './routing-plan.ts'
import { Router, type RoutingSharing } from './router.ts'

export interface RoutingFiles extends Pick<PolicyOptions, 'cost'> {
  readonly artifact?: LoadedArtifact
}

/** Rejects with what is wrong with one of them. `shownAs`: the name that the artifact goes by, where its file has another. */
export async function readRoutingFiles({ routing }: Settings, shownAs?: string): Promise<RoutingFiles> {
  const { artifact: file, profile } = routing
  return {
    ...(file !== undefined && { artifact: { ...(await JOBS.read({ path: file })), file: shownAs ?? file } }),
    ...(profile !== undefined && { cost: stepParts(await loadProfile(profile)) }),
  }
}

export interface RoutingParts {
  /** With the workers of the settings in it. */
  readonly registry: Registry
  readonly metrics: Metrics
  readonly events: Events
  readonly insight: Insight
  readonly feed: Pick<LiveFeed, 'any' | 'decided' | 'events'>
  readonly log: Log
  readonly rateLimitedLog: RateLimitedLog
  /** Hears of changes too. */
  readonly changed?: (change: RoutingChange) => void
  readonly artifactLoaded?: (path: string, shownAs: string) => Promise<void>
  /** Absent where this gateway is alone. */
  readonly replicas?: RoutingSharing
}

export function startRouting(
  { routing, observe }: Settings,
  files: RoutingFiles,
  {
    registry,
    metrics,
    events,
    insight,
    feed,
    log,
    rateLimitedLog,
    changed,
    artifactLoaded,
    replicas,
  }: RoutingParts,
): { readonly control: RoutingControl; readonly router: Router } {
  const control = new RoutingControl({
    routing,
    registry,
    log,
    ...files,
    ...(replicas && { unseen: replicas.unseen.on }),
    ...(artifactLoaded && { artifactLoaded }),
    changed(change) {
      events.publish('routing', change)
      metrics.routingChanges.inc({ cause: change.cause })
      if (change.cause === 'artifact' || change.cause === 'refit') insight.fit.forget()
      feed.events.add('routing', change.routing.policy, change.cause)
      changed?.(change)
    },
  })
  const router = new Router({
    registry,
    metrics,
    prefillPolicy: control.prefillPolicy,
    table: control.firstTable(),
    tableFor: shape => control.tableFor(shape),
    decisionsKept: observe.decisionsKept,
    ...(replicas && { replicas }),
    followers: {
      get any() {
        return events.any || feed.any
      },
      decided(record, routable) {
        events.publish('decision', record)
        if (feed.any) feed.decided(record, routable)
      },
    },
    counted: decided => insight.fit.decided(decided),
    rejected(reason, reqId) {
      if (!readsCounts(descriptorOf(control.policy))) return
      rateLimitedLog.say(`counts ${reason}`, performance.now(), times =>
        log.warn({ reason, times, reqId }, 'counts of a hand-off cannot be used: it is routed by load'),
      )
    },
  })
  control.drive(router)
  return { control, router }
}
