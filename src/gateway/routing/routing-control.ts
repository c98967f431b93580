/**
 * The routing in force, and every change to it: policy, artifact, refits for another number of workers. A
 * change is checked and prepared beside the table in force, then replaces it atomically or not at all. Slow
 * changes run one after the other, so the last one wins and none is applied partially.
 */
import type { Registry, RegistryEvent } from '../../cluster/registry.ts'
import { EldrError } from '../../errors.ts'
import { missingFor } from '../../policy/create-policy.ts'
import { descriptorOf, type PolicyName, type PolicyOptions } from '../../policy/decode-policy.ts'
import type { LearntCosts } from '../../policy/learnt-costs.ts'
import { sumOf, type UnionCost } from '../../policy/step-cost.ts'
import {
  createPrefillPolicy,
  type PrefillPolicy,
  type PrefillPolicyName,
} from '../../policy/prefill-policy.ts'
import { Refusal } from '../http/refusal.ts'
import type { RoutingSettings } from '../config/settings.ts'
import type { Log } from '../observe/log/log.ts'
import { OffThread } from './off-thread.ts'
import type { Shape } from './read-experts.ts'
import type { Router } from './router.ts'
import {
  firstPlan,
  type LoadedArtifact,
  misfitOf,
  type Plan,
  refitPlan,
  tableFromPlan,
  tableSize,
  withArtifact,
} from './routing-plan.ts'
import type { RoutingTable, TableResult } from './routing-table.ts'
import type { ShadowOptions } from './shadow/table-shadow.ts'
import type { AssignableWorker, ClusterAssignment } from './cluster-assignment.ts'

export interface ControlOptions extends Pick<PolicyOptions, 'cost' | 'unseen'> {
  readonly routing: RoutingSettings
  readonly registry: Pick<Registry, 'views' | 'subscribe'>
  readonly log: Log
  readonly artifact?: LoadedArtifact
  /** Outlives the tables, which are replaced at every change. Undefined if the cost of a step is fixed. */
  readonly learnt?: LearntCosts
  /** Policies that decide beside the one in force. Undefined without any. */
  readonly shadow?: ShadowOptions
  /** Called after every artifact load. The load waits for it, because the file may be temporary. */
  readonly artifactLoaded?: (path: string, shownAs: string) => Promise<void>
  /** Called after every change, and after a refit that was refused. */
  readonly changed?: (change: RoutingChange) => void
}

export interface RoutingChange {
  readonly cause: 'policy' | 'artifact' | 'refit' | 'refit_refused' | 'workers' | 'model'
  readonly routing: RoutingView
}

/** What /eldr/config and events show. */
export interface RoutingView {
  readonly policy: PolicyName
  readonly tau: number
  readonly prefillPolicy: PrefillPolicyName
  readonly artifact?: {
    readonly file: string
    readonly sha256: string
    readonly model: string
    readonly clusters: number
  }
  readonly decodeWorkers: number
  /** Why the artifact's clusters do not match the workers, and why they were not refitted. */
  readonly note?: string
}

/** Changes of policy that are made while all others are refused. */
export interface RoutingHold {
  setPolicy(change: PolicyChange): RoutingView
  /** Makes a last change; others are possible again. */
  release(last: PolicyChange): RoutingView
}

interface PolicyChange {
  readonly policy?: PolicyName
  readonly tau?: number
  readonly prefillPolicy?: PrefillPolicyName
}

/** A worker without streams has the cost of the cluster. */
const NO_WORKER = -1

/** Workers join and leave in groups: a refit waits until nothing has changed for this long. */
const REFIT_DELAY_MS = 500

export class RoutingControl {
  readonly #options: ControlOptions
  readonly #offThread = new OffThread()
  readonly #unsubscribe: () => void
  #plan: Plan
  #prefillPolicyName: PrefillPolicyName
  #prefillPolicy: PrefillPolicy
  #router: Router | undefined
  /** Worker indexes that the table in force covers. */
  #tableSize = 0
  #queue: Promise<unknown> = Promise.resolve()
  #refitTimer: NodeJS.Timeout | undefined
  #whyNotRefitted = ''
  /** Why changes are refused; undefined if they are not. */
  #held: string | undefined

  constructor(options: ControlOptions) {
    this.#options = options
    this.#plan = firstPlan(options.routing, options.artifact)
    this.#prefillPolicyName = options.routing.prefillPolicy
    this.#prefillPolicy = this.#createPrefillPolicy()
    this.#unsubscribe = options.registry.subscribe(event => this.#workersChanged(event))
  }

  get prefillPolicy(): PrefillPolicy {
    return this.#prefillPolicy
  }

  /** The configured decode policy. It may still route by load until it has what it needs. */
  get policy(): PolicyName {
    return this.#plan.policy
  }

  /** True while changes are refused. */
  get isHeld(): boolean {
    return this.#held !== undefined
  }

  get loaded(): LoadedArtifact | undefined {
    return this.#plan.loaded
  }

  get plan(): Plan {
    return this.#plan
  }

  /** Step cost of union, if a profile is configured. */
  get cost(): PolicyOptions['cost'] {
    return this.#options.cost
  }

  /** Decode workers that are not being removed. */
  decodeWorkers(): readonly AssignableWorker[] {
    return this.#workers()
  }

  /** Cluster of a decode worker, if it has one. */
  clusterOf(index: number): number | undefined {
    return this.#plan.assignment.get(index)
  }

  /** Learnt cost of a step of a decode worker, in microseconds; undefined before its first streams. */
  stepCostOf(
    index: number,
  ): (UnionCost & { readonly streams: number; readonly timeRatio: number }) | undefined {
    const { learnt } = this.#options
    const streams = learnt?.streams(index) ?? 0
    if (streams === 0) return undefined
    const cost = learnt!.of(index)
    // Costs of workers have the same proportions, and any part may be 0.
    return { ...cost, streams, timeRatio: sumOf(cost) / sumOf(learnt!.of(NO_WORKER)) }
  }

  /** The table for the settings, before there is a router. */
  firstTable(): RoutingTable {
    const result = this.#createTable(this.#plan)
    if (result.kind === 'ok') {
      this.#warnOfTau()
      return this.#inForce(result.table)
    }
    throw new EldrError('ELDR_USAGE', {
      found: `policy ${this.policy}`,
      expected: result.missing,
      todo: 'Give one with --artifact.',
    })
  }

  /**
   * Sets the router that gets new tables. Starts a refit if the artifact's clusters do not match the workers.
   */
  drive(router: Router): void {
    this.#router = router
    void this.#refitToWorkers()
  }

  /** The table for a shape that the first hand-off has shown. */
  tableFor(shape: Shape): RoutingTable {
    const plan = { ...this.#plan, shape }
    const result = this.#createTable(plan)
    if (result.kind === 'missing') throw new Error(`the policy ${this.policy} needs ${result.missing}`)
    this.#plan = plan
    this.#publish('model')
    return this.#inForce(result.table)
  }

  /** Refuses, with these words, all changes of policy, artifact and clusters but those of the hold. */
  hold(words: string): RoutingHold {
    this.#refuseIfHeld()
    this.#held = words
    return {
      setPolicy: change => this.#setPolicy(change),
      release: last => {
        this.#held = undefined
        return this.#setPolicy(last)
      },
    }
  }

  /** Throws if the policy cannot be set now. */
  refuseIfLacking(policy: PolicyName): void {
    const { loaded, shape } = this.#plan
    const missing = missingFor(policy, { workers: 1, artifact: loaded?.artifact, shape })
    if (missing !== undefined && missing.need !== 'counts') throw lacks(policy, missing.words)
  }

  setPolicy(change: PolicyChange): RoutingView {
    this.#refuseIfHeld()
    return this.#setPolicy(change)
  }

  #setPolicy({ policy, tau, prefillPolicy }: PolicyChange): RoutingView {
    const { policy: before } = this.#plan
    if (policy !== undefined || tau !== undefined) {
      this.#apply({ ...this.#plan, policy: policy ?? before, tau: tau ?? this.#plan.tau })
      this.#warnOfTau()
    }
    if (prefillPolicy !== undefined && prefillPolicy !== this.#prefillPolicyName) {
      this.#prefillPolicyName = prefillPolicy
      this.#prefillPolicy = this.#createPrefillPolicy()
      if (this.#router) this.#router.prefillPolicy = this.#prefillPolicy
    }
    if (this.policy !== before) this.#refitSoon()
    return this.#publish('policy')
  }

  /**
   * `shownAs`: name of the artifact for people. Rejects if the artifact is invalid; then nothing has changed.
   */
  load(path: string, shownAs = path, assignment?: ClusterAssignment): Promise<RoutingView> {
    return this.#enqueue(async () => {
      this.#refuseIfHeld()
      const loaded: LoadedArtifact = { ...(await this.#offThread.run('read', { path })), file: shownAs }
      const asRead = withArtifact(this.#plan, loaded, assignment)
      const ready = this.#isDue(asRead)
        ? await this.#refit(asRead).catch((error: unknown) => this.#notRefitted(error, asRead))
        : asRead
      // An experiment may have begun meanwhile.
      this.#refuseIfHeld()
      // Policy and τ may have changed meanwhile: take those in force.
      this.#apply({ ...this.#plan, loaded: ready.loaded!, assignment: ready.assignment })
      await this.#options.artifactLoaded?.(path, shownAs)
      return this.#publish('artifact')
    })
  }

  /** `clusters` (default: one per decode worker). */
  refit(clusters?: number): Promise<RoutingView> {
    return this.#enqueue(async () => {
      this.#refuseIfHeld()
      const { loaded, assignment } = await this.#refit(this.#plan, clusters)
      // An experiment may have begun meanwhile.
      this.#refuseIfHeld()
      this.#apply({ ...this.#plan, loaded, assignment })
      return this.#publish('refit')
    })
  }

  /** Refits to the number of clusters that the gateway before this one had. */
  async restoreClusters(clusters: number): Promise<void> {
    const differs = () =>
      this.#plan.loaded !== undefined && this.#plan.loaded.artifact.about.workers !== clusters
    await this.#enqueue(async () => (differs() ? this.#refitNow(clusters) : undefined)).catch(
      (error: unknown) => this.#notRefitted(error),
    )
  }

  view(): RoutingView {
    const { policy, tau, loaded } = this.#plan
    const workers = this.#workers()
    const misfit = misfitOf(this.#plan, workers)
    return {
      policy,
      tau,
      prefillPolicy: this.#prefillPolicyName,
      artifact: loaded && {
        file: loaded.file,
        sha256: loaded.sha256,
        model: loaded.artifact.about.model,
        clusters: loaded.artifact.about.workers,
      },
      decodeWorkers: workers.length,
      note:
        misfit === undefined || this.#whyNotRefitted === ''
          ? misfit
          : `${misfit}; not refitted: ${this.#whyNotRefitted}`,
    }
  }

  close(): void {
    this.#unsubscribe()
    clearTimeout(this.#refitTimer)
    this.#offThread.close()
  }

  #refuseIfHeld(): void {
    if (this.#held !== undefined) throw new Refusal('ELDR_EXPERIMENT_RUNNING', { words: this.#held })
  }

  #warnOfTau(): void {
    const { policy, tau } = this.#plan
    const { minBoundedTau = 0 } = descriptorOf(policy)
    if (tau < minBoundedTau)
      this.#options.log.warn(
        { policy, tau, minBoundedTau },
        'tau is too small to bound the cost of the policy',
      )
  }

  #createPrefillPolicy(): PrefillPolicy {
    return createPrefillPolicy(this.#prefillPolicyName, { overload: this.#options.routing.prefixLoadFactor })
  }

  #workers(): AssignableWorker[] {
    return this.#options.registry
      .views(performance.now())
      .filter(({ spec, leaving }) => spec.role === 'decode' && !leaving)
      .map(({ spec, index }) => ({ id: spec.id, index, fixed: spec.cluster !== undefined }))
  }

  /** Health changes are ignored: a worker that is unavailable for a while keeps its region. */
  #workersChanged({ kind, worker, index }: RegistryEvent): void {
    if (worker.role !== 'decode' || (kind !== 'added' && kind !== 'removed') || this.#router === undefined)
      return
    if (kind === 'added') this.#options.learnt?.forget(index)
    if (kind === 'added' && index >= this.#tableSize) {
      this.#apply(this.#plan)
      this.#publish('workers')
    }
    this.#refitSoon()
  }

  #createTable(plan: Plan): TableResult {
    const { routing, cost, learnt, unseen, shadow } = this.#options
    const { minCovered } = routing
    return tableFromPlan(plan, this.#workers(), { minCovered, cost, learnt, unseen, shadow })
  }

  #apply(plan: Plan): void {
    const result = this.#createTable(plan)
    if (result.kind === 'missing') throw lacks(plan.policy, result.missing)
    this.#plan = plan
    this.#router?.swap(this.#inForce(result.table))
  }

  #inForce(table: RoutingTable): RoutingTable {
    this.#tableSize = tableSize(this.#workers())
    return table
  }

  #refitSoon(): void {
    clearTimeout(this.#refitTimer)
    this.#refitTimer = setTimeout(() => void this.#refitToWorkers(), REFIT_DELAY_MS).unref()
  }

  async #refitToWorkers(): Promise<void> {
    const misfit = misfitOf(this.#plan, this.#workers())
    if (misfit === undefined) return
    const { routing, log } = this.#options
    if (routing.refit === 'off') log.warn(`${misfit}: not refitting, because routing.refit is off`)
    // A change that is queued before it may have made it unnecessary.
    else
      await this.#enqueue(async () => (this.#isDue(this.#plan) ? this.#refitNow() : undefined)).catch(
        (error: unknown) => this.#notRefitted(error),
      )
  }

  #isDue(plan: Plan): boolean {
    return this.#options.routing.refit === 'auto' && misfitOf(plan, this.#workers()) !== undefined
  }

  async #refitNow(clusters?: number): Promise<RoutingView> {
    const { loaded, assignment } = await this.#refit(this.#plan, clusters)
    this.#apply({ ...this.#plan, loaded, assignment })
    return this.#publish('refit')
  }

  async #refit(plan: Plan, clusters?: number): Promise<Plan & { readonly loaded: LoadedArtifact }> {
    const { log } = this.#options
    const startMs = performance.now()
    log.info(`${misfitOf(plan, this.#workers()) ?? 'refit requested'}: refitting`)
    const fitted = await refitPlan(plan, this.#workers(), this.#offThread, clusters)
    this.#whyNotRefitted = ''
    log.info(
      {
        clusters: fitted.loaded.artifact.about.workers,
        seconds: Math.round(performance.now() - startMs) / 1000,
      },
      'refitted',
    )
    return fitted
  }

  /** The clusters stay as they are: workers without one get requests by load alone. */
  #notRefitted(error: unknown, plan = this.#plan): Plan {
    if (error instanceof Refusal && error.code === 'ELDR_DRAINING') return plan // the gateway stops
    this.#whyNotRefitted =
      error instanceof Refusal
        ? (error.words ?? error.code)
        : error instanceof EldrError
          ? error.message
          : 'it failed'
    this.#options.log.warn({ err: error }, 'not refitted')
    this.#publish('refit_refused')
    return plan
  }

  #publish(cause: RoutingChange['cause']): RoutingView {
    const routing = this.view()
    this.#options.log.info({ cause, ...routing }, 'routing')
    this.#options.changed?.({ cause, routing })
    return routing
  }

  #enqueue<T>(work: () => Promise<T>): Promise<T> {
    const result = this.#queue.then(work)
    this.#queue = result.catch(() => undefined)
    return result
  }
}

const lacks = (policy: PolicyName, missing: string) =>
  new Refusal('ELDR_POLICY_LACKS', { words: `The policy ${policy} needs ${missing}.` })
