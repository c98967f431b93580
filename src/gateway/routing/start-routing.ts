/** Creates the routing control and the router from the settings. */
import type { Registry } from '../../cluster/registry.ts'
import { stepParts } from '../../cost/profile.ts'
import { loadProfile } from '../../cost/profile-file.ts'
import type { PolicyOptions } from '../../policy/decode-policy.ts'
import { learntCosts } from '../../policy/learnt-costs.ts'
import { DEFAULT_COST } from '../../policy/union.ts'
import type { Settings } from '../config/settings.ts'
import type { Decisions } from '../observe/decisions.ts'
import type { Log } from '../observe/log/log.ts'
import { JOBS } from './fit-jobs.ts'
import { type RoutingChange, RoutingControl } from './routing-control.ts'
import type { LoadedArtifact } from './routing-plan.ts'
import { Router, type RoutingSharing } from './router.ts'

export interface RoutingFiles extends Pick<PolicyOptions, 'cost'> {
  readonly artifact?: LoadedArtifact
}

/** Rejects if a file is invalid. `shownAs`: name of the artifact for people (default: its path). */
export async function readRoutingFiles({ routing }: Settings, shownAs?: string): Promise<RoutingFiles> {
  const { artifact: file, profile } = routing
  return {
    artifact:
      file === undefined ? undefined : { ...(await JOBS.read({ path: file })), file: shownAs ?? file },
    cost: profile === undefined ? undefined : stepParts(await loadProfile(profile)),
  }
}

export interface RoutingParts {
  /** Contains the configured workers. */
  readonly registry: Registry
  readonly decisions: Decisions
  readonly log: Log
  readonly changed: (change: RoutingChange) => void
  readonly unreachable?: (worker: string) => void
  readonly artifactLoaded?: (path: string, shownAs: string) => Promise<void>
  /** Undefined for a single gateway. */
  readonly replicas?: RoutingSharing
}

export function startRouting(
  { routing }: Settings,
  files: RoutingFiles,
  { registry, decisions, log, changed, unreachable, artifactLoaded, replicas }: RoutingParts,
): { readonly control: RoutingControl; readonly router: Router } {
  const control = new RoutingControl({
    routing,
    registry,
    log,
    ...files,
    learnt: routing.stepCost === 'learnt' ? learntCosts(files.cost ?? DEFAULT_COST) : undefined,
    unseen: replicas?.unseen.on,
    artifactLoaded,
    changed,
  })
  const router = new Router({
    registry,
    decisions,
    prefillPolicy: control.prefillPolicy,
    table: control.firstTable(),
    tableFor: shape => control.tableFor(shape),
    replicas,
    unreachable,
  })
  control.drive(router)
  return { control, router }
}
