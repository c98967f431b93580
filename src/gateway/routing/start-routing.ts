/** Creates the routing control and the router from the settings. */
import type { Registry } from '../../cluster/registry.ts'
import { stepParts, turnParts } from '../../cost/profile.ts'
import { loadProfile } from '../../cost/profile-file.ts'
import { Conversations, type TurnCost } from '../../policy/conversations.ts'
import type { PolicyOptions } from '../../policy/decode-policy.ts'
import { learntCosts } from '../../policy/learnt-costs.ts'
import { DEFAULT_COST } from '../../policy/union.ts'
import type { Settings } from '../config/settings.ts'
import type { Decisions } from '../observe/decisions.ts'
import type { Log } from '../observe/log/log.ts'
import { JOBS } from './fit-jobs.ts'
import { type RoutingChange, RoutingControl } from './routing-control.ts'
import type { LoadedArtifact } from './routing-plan.ts'
import type { ShadowCounts } from '../observe/shadow-counts.ts'
import { CpuBudget } from './shadow/cpu-budget.ts'
import type { ShadowOptions } from './shadow/table-shadow.ts'
import { Router, type RouterOptions, type RoutingSharing } from './router.ts'

export interface RoutingFiles extends Pick<PolicyOptions, 'cost'> {
  readonly artifact?: LoadedArtifact
  readonly turnCost?: TurnCost
}

/** Rejects if a file is invalid. `shownAs`: name of the artifact for people (default: its path). */
export async function readRoutingFiles({ routing }: Settings, shownAs?: string): Promise<RoutingFiles> {
  const { artifact: file } = routing
  const profile = routing.profile === undefined ? undefined : await loadProfile(routing.profile)
  return {
    artifact:
      file === undefined ? undefined : { ...(await JOBS.read({ path: file })), file: shownAs ?? file },
    cost: profile && stepParts(profile),
    turnCost: profile && turnParts(profile),
  }
}

export interface RoutingParts {
  /** Contains the configured workers. */
  readonly registry: Registry
  readonly decisions: Decisions
  readonly log: Log
  readonly changed: (change: RoutingChange) => void
  readonly unreachable?: (worker: string) => void
  /** Whether the engine can continue conversations where they were. */
  readonly keepsKv?: boolean | undefined
  readonly sampled?: RouterOptions['sampled']
  readonly artifactLoaded?: (path: string, shownAs: string) => Promise<void>
  /** Counts of the shadow policies in the settings; without it they are off. */
  readonly shadow?: ShadowCounts
  /** Undefined for a single gateway. */
  readonly replicas?: RoutingSharing
}

export function startRouting(
  { routing, conversations: talks, workers }: Settings,
  { turnCost, ...files }: RoutingFiles,
  parts: RoutingParts,
): {
  readonly control: RoutingControl
  readonly router: Router
  readonly conversations: Conversations | undefined
} {
  const { registry, decisions, log, changed, unreachable, keepsKv } = parts
  const { sampled, artifactLoaded, shadow, replicas } = parts
  if (talks.enabled && !keepsKv)
    log.warn({ engine: workers.engine }, 'conversations are off: the engine cannot')
  const conversations = talks.enabled && keepsKv ? new Conversations({ ...talks, cost: turnCost }) : undefined
  registry.subscribe(({ kind, worker }) => {
    if (kind === 'unhealthy' || kind === 'removed') conversations?.lost(worker.id)
  })
  const control = new RoutingControl({
    routing,
    registry,
    log,
    ...files,
    learnt: routing.stepCost === 'learnt' ? learntCosts(files.cost ?? DEFAULT_COST) : undefined,
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
    conversations,
    replicas,
    sampled,
    unreachable,
  })
  control.drive(router)
  return { control, router, conversations }
}

/** Undefined without shadow policies, which then cost nothing. */
function shadowOptions(counts: ShadowCounts, log: Log): ShadowOptions | undefined {
  const failed = (policy: string, error: unknown) =>
    log.error({ err: error, policy }, 'shadow policy failed (bug): off until the routing changes')
  const { policies } = counts
  return policies.length === 0 ? undefined : { policies, counts, budget: new CpuBudget(), failed }
}
