/** Converts changes of this gateway to shared fields, and applies shared fields to this gateway. */
import type { Registry } from '../../../cluster/registry.ts'
import { POLICIES, type PolicyName } from '../../../policy/decode-policy.ts'
import { PREFILL_POLICIES, type PrefillPolicyName } from '../../../policy/prefill-policy.ts'
import { Refusal } from '../../http/refusal.ts'
import { MAX_TAU } from '../../config/schema/schema-parts.ts'
import { type AdaptHold, holdIn } from '../../routing/adapt-hold.ts'
import type { RoutingControl } from '../../routing/routing-control.ts'
import { type ArtifactShare, sharedArtifactIn } from './artifact-share.ts'
import type { Fields } from './changes.ts'

export interface PolicyChange {
  readonly policy?: PolicyName
  readonly tau?: number
  readonly prefillPolicy?: PrefillPolicyName
}

export interface GatewayChangesOptions {
  readonly registry: Pick<Registry, 'drain' | 'undrain'>
  readonly control: Pick<RoutingControl, 'view' | 'setPolicy' | 'refit'>
  readonly artifacts: Pick<ArtifactShare, 'take' | 'keep'>
  /** Told of the hold of live recalibration that is in force, or of none. */
  readonly held: (hold: AdaptHold | undefined) => void
}

const DRAIN = 'drain:'
const INVALID_FIELD = 'the value in the store is invalid'

export const fieldsOf = {
  policy: ({ policy, tau, prefillPolicy }: PolicyChange): Fields => {
    const given = Object.entries({ policy, tau, prefillPolicy }).filter(([, value]) => value !== undefined)
    return Object.fromEntries(given.map(([name, value]) => [name, String(value)]))
  },
  /** Clears the refit and the hold, which were for the artifact before. */
  artifact: (sha256: string, path: string, hold?: AdaptHold): Fields => ({
    artifact: JSON.stringify({ sha256, path }),
    refit: '',
    hold: hold === undefined ? '' : JSON.stringify(hold),
  }),
  /** The time makes every refit distinct, even with the same number of clusters. */
  refit: (clusters: number, nowMs: number): Fields => ({ refit: `${clusters} ${nowMs}` }),
  drain: (worker: string, drained: boolean): Fields => ({ [`${DRAIN}${worker}`]: drained ? '1' : '' }),
} as const

export class GatewayChanges {
  readonly #options: GatewayChangesOptions
  /** Field of the last refit, made here or elsewhere. */
  #refit = ''
  /** Workers that are drained on all replicas. */
  readonly #drained = new Set<string>()

  constructor(options: GatewayChangesOptions) {
    this.#options = options
  }

  /** Records a refit made here. */
  refitted(field: string): void {
    this.#refit = field
  }

  /** Records a drain made here. */
  drained(worker: string, drained: boolean): void {
    if (drained) this.#drained.add(worker)
    else this.#drained.delete(worker)
  }

  /**
   * Applies the fields that differ from the gateway's state. Returns the problems of those that cannot be
   * applied.
   */
  async apply(fields: Fields): Promise<string[]> {
    const problems: string[] = []
    const attempt = async (what: string, work: () => unknown) => {
      try {
        await work()
      } catch (error) {
        problems.push(`${what}: ${wordsOf(error)}`)
      }
    }
    await attempt('artifact', () => this.#applyArtifact(fields['artifact']))
    // After the artifact, whose load ends a hold.
    await attempt('hold', () => this.#applyHold(fields['hold']))
    await attempt('policy', () => this.#applyPolicy(fields))
    await attempt('refit', () => this.#applyRefit(fields['refit']))
    this.#applyDrains(
      new Set(
        Object.entries(fields).flatMap(([name, value]) =>
          name.startsWith(DRAIN) && value === '1' ? name.slice(DRAIN.length) : [],
        ),
      ),
    )
    return problems
  }

  /** Includes workers that are not registered here yet. */
  #applyDrains(workers: ReadonlySet<string>): void {
    for (const worker of workers) {
      this.#drained.add(worker)
      this.#options.registry.drain(worker)
    }
    for (const worker of this.#drained) {
      if (workers.has(worker)) continue
      this.#drained.delete(worker)
      this.#options.registry.undrain(worker)
    }
  }

  async #applyArtifact(field: string | undefined): Promise<void> {
    if (field === undefined) return
    const target = sharedArtifactIn(field)
    if (target === undefined) throw new Error(INVALID_FIELD)
    const { artifacts, control } = this.#options
    if (target.sha256 !== control.view().artifact?.sha256) await artifacts.take(target)
    else await artifacts.keep(target)
  }

  #applyHold(field: string | undefined): void {
    const hold = field === undefined ? undefined : holdIn(field)
    if (field !== undefined && hold === undefined) throw new Error(INVALID_FIELD)
    this.#options.held(hold)
  }

  #applyPolicy({ policy, tau, prefillPolicy }: Fields): void {
    const { control } = this.#options
    const now = control.view()
    const number = tau === undefined || tau === '' ? undefined : Number(tau)
    // Only the fields that differ.
    const change: PolicyChange = {
      policy: isOne(POLICIES, policy) && policy !== now.policy ? policy : undefined,
      tau:
        number !== undefined && number >= 0 && number <= MAX_TAU && number !== now.tau ? number : undefined,
      prefillPolicy:
        isOne(PREFILL_POLICIES, prefillPolicy) && prefillPolicy !== now.prefillPolicy
          ? prefillPolicy
          : undefined,
    }
    if (Object.values(change).some(value => value !== undefined)) control.setPolicy(change)
  }

  async #applyRefit(field: string | undefined): Promise<void> {
    if (field === undefined || field === '' || field === this.#refit) return
    const clusters = Number(field.split(' ')[0])
    if (!Number.isSafeInteger(clusters) || clusters < 1) throw new Error(INVALID_FIELD)
    this.#refit = field // tried once, even if it fails
    await this.#options.control.refit(clusters)
  }
}

function isOne<Name extends string>(names: readonly Name[], name: string | undefined): name is Name {
  return names.includes(name as Name)
}

function wordsOf(error: unknown): string {
  return error instanceof Refusal
    ? (error.words ?? error.code)
    : error instanceof Error
      ? error.message
      : String(error)
}
