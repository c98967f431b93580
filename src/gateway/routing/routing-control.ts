/**
 * What decisions are made by, and every change of it: policy, artifact, clusters for another number of workers. A change is checked and
 * made ready beside the table in force, and put in its place at once and whole, or not at all. Changes that take time come one after the
 * other, so that of two the last wins and none is lost half-way.
 */
import type { Registry, RegistryEvent } from '../../cluster/registry.ts'
import { EldrError } from '../../errors.ts'
import type { PolicyName, PolicyOptions } from '../../policy/decode-policy.ts'
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
  refitted,
  roomFor,
  tableOf,
  withArtifact,
} from './routing-plan.ts'
import type { RoutingTable } from './routing-table.ts'
import type { SeatedWorker } from './cluster-assignment.ts'

export interface ControlOptions extends Pick<PolicyOptions, 'cost' | 'unseen'> {
  readonly routing: RoutingSettings
  readonly registry: Pick<Registry, 'views' | 'subscribe'>
  readonly log: Log
  readonly artifact?: LoadedArtifact
  /** Hears of every artifact that was loaded while its file is there, and is waited for. */
  readonly artifactLoaded?: (path: string, shownAs: string) => Promise<void>
  /** Hears of every change that was made, and of re-fits that were not. */
  readonly changed?: (change: RoutingChange) => void
}

export interface RoutingChange {
  readonly cause: 'policy' | 'artifact' | 'refit' | 'refit_refused' | 'workers' | 'model'
  readonly routing: RoutingView
}

/** What /eldr/config and events show of it. */
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
  /** Why the artifact's clusters do not fit the workers, and why they stay so. */
  readonly note?: string
}

/** Workers come and go in groups: a re-fit waits until nothing has changed for so long. */
const REFIT_DELAY_MS = 500

export class RoutingControl {
  readonly #options: ControlOptions
  readonly #offThread = new OffThread()
  readonly #unsubscribe: () => void
  #plan: Plan
  #prefillPolicyName: PrefillPolicyName
  #prefillPolicy: PrefillPolicy
  #router: Router | undefined
  /** Workers that the table in force has room for. */
  #room = 0
  #turn: Promise<unknown> = Promise.resolve()
  #soon: NodeJS.Timeout | undefined
  #whyNotFitted = ''

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

  /** The decode policy as it was asked for, which may still wait for what it needs. */
  get policy(): PolicyName {
    return this.#plan.policy
  }

  get loaded(): LoadedArtifact | undefined {
    return this.#plan.loaded
  }

  /** Cluster of a decode worker, where it has one. */
  clusterOf(index: number): number | undefined {
    return this.#plan.seats.get(index)
  }

  /** Of the settings, before there is a router to put it into. */
  firstTable(): RoutingTable {
    const table = this.#tableOf(this.#plan)
    if (typeof table !== 'string') return this.#taken(table)
    throw new EldrError('ELDR_USAGE', {
      found: `policy ${this.policy}`,
      expected: table,
      todo: 'Give one with --artifact.',
    })
  }

  /** Tables are put into this router from now on. When the artifact's clusters are not as many as the workers, a re-fit begins. */
  drive(router: Router): void {
    this.#router = router
    void this.#fitToWorkers()
  }

  /** The model has shown its shape in a hand-off. */
  tableFor(shape: Shape): RoutingTable {
    const table = this.#tableOf({ ...this.#plan, shape })
    if (typeof table === 'string') throw new Error(table)
    this.#plan = { ...this.#plan, shape }
    this.#tell('model')
    return this.#taken(table)
  }

  setPolicy({
    policy,
    tau,
    prefillPolicy,
  }: {
    policy?: PolicyName
    tau?: number
    prefillPolicy?: PrefillPolicyName
  }): RoutingView {
    const { policy: before } = this.#plan
    if (policy !== undefined || tau !== undefined)
      this.#put({ ...this.#plan, policy: policy ?? before, tau: tau ?? this.#plan.tau })
    if (prefillPolicy !== undefined && prefillPolicy !== this.#prefillPolicyName) {
      this.#prefillPolicyName = prefillPolicy
      this.#prefillPolicy = this.#createPrefillPolicy()
      if (this.#router) this.#router.prefillPolicy = this.#prefillPolicy
    }
    if (this.policy !== before) this.#fitSoon()
    return this.#tell('policy')
  }

  /** `shownAs`: the name that the artifact goes by. Rejects with what is wrong with it; then nothing has changed. */
  load(path: string, shownAs = path): Promise<RoutingView> {
    return this.#inTurn(async () => {
      const loaded: LoadedArtifact = { ...(await this.#offThread.run('read', { path })), file: shownAs }
      const asRead = withArtifact(this.#plan, loaded)
      const ready = this.#isDue(asRead)
        ? await this.#refitted(asRead).catch((error: unknown) => this.#notFitted(error, asRead))
        : asRead
      this.#put({ ...this.#plan, loaded: ready.loaded!, seats: ready.seats }) // policy and τ may be others than when this began
      await this.#options.artifactLoaded?.(path, shownAs)
      return this.#tell('artifact')
    })
  }

  /** With as many clusters as there are decode workers, unless told. */
  refit(clusters?: number): Promise<RoutingView> {
    return this.#inTurn(() => this.#refitNow(clusters))
  }

  /** As many clusters as another gateway had in whose place this one is. */
  async restoreClusters(clusters: number): Promise<void> {
    const isOther = () =>
      this.#plan.loaded !== undefined && this.#plan.loaded.artifact.about.workers !== clusters
    await this.#inTurn(async () => (isOther() ? this.#refitNow(clusters) : undefined)).catch(
      (error: unknown) => this.#notFitted(error),
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
      ...(loaded && {
        artifact: {
          file: loaded.file,
          sha256: loaded.sha256,
          model: loaded.artifact.about.model,
          clusters: loaded.artifact.about.workers,
        },
      }),
      decodeWorkers: workers.length,
      ...(misfit !== undefined && {
        note: this.#whyNotFitted === '' ? misfit : `${misfit}; not fitted anew: ${this.#whyNotFitted}`,
      }),
    }
  }

  close(): void {
    this.#unsubscribe()
    clearTimeout(this.#soon)
    this.#offThread.close()
  }

  #createPrefillPolicy(): PrefillPolicy {
    return createPrefillPolicy(this.#prefillPolicyName, { overload: this.#options.routing.prefixLoadFactor })
  }

  #workers(): SeatedWorker[] {
    return this.#options.registry
      .views(performance.now())
      .filter(({ spec, leaving }) => spec.role === 'decode' && !leaving)
      .map(({ spec, index }) => ({ id: spec.id, index, fixed: spec.cluster !== undefined }))
  }

  /** Health comes and goes without any of this: a worker that is away for a while finds its region as it was. */
  #workersChanged({ kind, worker, index }: RegistryEvent): void {
    if (worker.role !== 'decode' || (kind !== 'added' && kind !== 'removed') || this.#router === undefined)
      return
    if (kind === 'added' && index >= this.#room) {
      this.#put(this.#plan)
      this.#tell('workers')
    }
    this.#fitSoon()
  }

  #tableOf(plan: Plan): RoutingTable | string {
    const { routing, cost, unseen } = this.#options
    return tableOf(plan, this.#workers(), { minCovered: routing.minCovered, cost, unseen })
  }

  #put(plan: Plan): void {
    const table = this.#tableOf(plan)
    if (typeof table === 'string')
      throw new Refusal('ELDR_POLICY_LACKS', { words: `The policy ${plan.policy} needs ${table}.` })
    this.#plan = plan
    this.#router?.swap(this.#taken(table))
  }

  #taken(table: RoutingTable): RoutingTable {
    this.#room = roomFor(this.#workers())
    return table
  }

  #fitSoon(): void {
    clearTimeout(this.#soon)
    this.#soon = setTimeout(() => void this.#fitToWorkers(), REFIT_DELAY_MS).unref()
  }

  async #fitToWorkers(): Promise<void> {
    const misfit = misfitOf(this.#plan, this.#workers())
    if (misfit === undefined) return
    const { routing, log } = this.#options
    if (routing.refit === 'off') log.warn(`${misfit}: some of them are left out, since routing.refit is off`)
    // Another change may have made it needless by the time it is its turn.
    else
      await this.#inTurn(async () => (this.#isDue(this.#plan) ? this.#refitNow() : undefined)).catch(
        (error: unknown) => this.#notFitted(error),
      )
  }

  #isDue(plan: Plan): boolean {
    return this.#options.routing.refit === 'auto' && misfitOf(plan, this.#workers()) !== undefined
  }

  async #refitNow(clusters?: number): Promise<RoutingView> {
    const { loaded, seats } = await this.#refitted(this.#plan, clusters)
    this.#put({ ...this.#plan, loaded, seats })
    return this.#tell('refit')
  }

  async #refitted(plan: Plan, clusters?: number): Promise<Plan & { readonly loaded: LoadedArtifact }> {
    const { log } = this.#options
    const startMs = performance.now()
    log.info(`${misfitOf(plan, this.#workers()) ?? 'asked for'}: fitting anew`)
    const fitted = await refitted(plan, this.#workers(), this.#offThread, clusters)
    this.#whyNotFitted = ''
    log.info(
      {
        clusters: fitted.loaded.artifact.about.workers,
        seconds: Math.round(performance.now() - startMs) / 1000,
      },
      'fitted anew',
    )
    return fitted
  }

  /** The clusters stay as they are: workers without one get requests by load alone. */
  #notFitted(error: unknown, plan = this.#plan): Plan {
    if (error instanceof Refusal && error.code === 'ELDR_DRAINING') return plan // nobody is left to be told
    this.#whyNotFitted =
      error instanceof Refusal
        ? (error.words ?? error.code)
        : error instanceof EldrError
          ? error.message
          : 'it failed'
    this.#options.log.warn({ err: error }, 'not fitted anew')
    this.#tell('refit_refused')
    return plan
  }

  #tell(cause: RoutingChange['cause']): RoutingView {
    const routing = this.view()
    this.#options.log.info({ cause, ...routing }, 'routing')
    this.#options.changed?.({ cause, routing })
    return routing
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const result = this.#turn.then(work)
    this.#turn = result.catch(() => undefined)
    return result
  }
}
