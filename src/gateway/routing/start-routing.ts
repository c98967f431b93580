/** Creates the routing control and the router from the settings. */
import type { Registry } from '../../cluster/registry.ts'
import { stepParts } from '../../cost/profile.ts'
import { loadProfile } from '../../cost/profile-file.ts'
import type { PolicyOptions } from '../../policy/decode-policy.ts'
import type { Settings } from '../config/settings.ts'
import type { Decisions } from '../observe/decisions.ts'
import type { Log } from '../observe/log/log.ts'
import { JOBS } from './fit-jobs.ts'
import { type RoutingChange, RoutingControl } from './routing-control.ts'
import type { LoadedArtifact } from './routing-plan.ts'
import { Router, type RoutingSharing } from './router.ts'
import type { ShadowCounts } from '../observe/shadow-counts.ts'
import { CpuBudget } from './shadow/cpu-budget.ts'
import type { ShadowOptions } from './shadow/table-shadow.ts'

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
  /** Counts of the shadow policies in the settings; without it they are off. */
  readonly shadow?: ShadowCounts
  /** Undefined for a single gateway. */
  readonly replicas?: RoutingSharing
}

export function startRouting(
  { routing }: Settings,
  files: RoutingFiles,
  { registry, decisions, log, changed, unreachable, artifactLoaded, shadow, replicas }: RoutingParts,
): { readonly control: RoutingControl; readonly router: Router } {
  const control = new RoutingControl({
    routing,
    registry,
    log,
    ...files,
    shadow: shadow && shadowOptions(shadow, log),
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

/** Undefined without shadow policies, which then cost nothing. */
function shadowOptions(counts: ShadowCounts, log: Log): ShadowOptions | undefined {
  const failed = (policy: string, error: unknown) =>
    log.error({ err: error, policy }, 'shadow policy failed (bug): off until the routing changes')
  const { policies } = counts
  return policies.length === 0 ? undefined : { policies, counts, budget: new CpuBudget(), failed }
}
