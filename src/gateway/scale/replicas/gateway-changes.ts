/** Between the shared changes and this gateway: what was changed here becomes fields, and fields become changes. */
import type { Registry } from '../../../cluster/registry.ts'
import { POLICIES, type PolicyName } from '../../../policy/decode-policy.ts'
import { PREFILL_POLICIES, type PrefillPolicyName } from '../../../policy/prefill-policy.ts'
import { Refusal } from '../../http/refusal.ts'
import { MAX_TAU } from '../../config/schema/schema-parts.ts'
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
  readonly artifacts: Pick<ArtifactShare, 'take'>
}

const DRAIN = 'drain:'

export const fieldsOf = {
  policy: ({ policy, tau, prefillPolicy }: PolicyChange): Fields => ({
    ...(policy && { policy }),
    ...(tau !== undefined && { tau: String(tau) }),
    ...(prefillPolicy && { prefillPolicy }),
  }),
  /** A re-fit was of the artifact before. */
  artifact: (sha256: string, path: string): Fields => ({
    artifact: JSON.stringify({ sha256, path }),
    refit: '',
  }),
  /** Every one is another, also with the same number. */
  refit: (clusters: number, nowMs: number): Fields => ({ refit: `${clusters} ${nowMs}` }),
  drain: (worker: string, drained: boolean): Fields => ({ [`${DRAIN}${worker}`]: drained ? '1' : '' }),
} as const

export class GatewayChanges {
  readonly #options: GatewayChangesOptions
  /** The last re-fit that was done, here or for another. */
  #refit = ''
  /** Workers that are drained for all. */
  readonly #drained = new Set<string>()

  constructor(options: GatewayChangesOptions) {
    this.#options = options
  }

  /** Was done here. */
  refitted(field: string): void {
    this.#refit = field
  }

  /** Was done here. */
  drained(worker: string, drained: boolean): void {
    if (drained) this.#drained.add(worker)
    else this.#drained.delete(worker)
  }

  /** Makes the gateway like the fields, as far as it can be, and says what cannot. What it is like already is left alone. */
  async apply(fields: Fields): Promise<string[]> {
    const problems: string[] = []
    const trying = async (what: string, work: () => unknown) => {
      try {
        await work()
      } catch (error) {
        problems.push(`${what}: ${wordsOf(error)}`)
      }
    }
    await trying('artifact', () => this.#artifact(fields['artifact']))
    await trying('policy', () => this.#policy(fields))
    await trying('refit', () => this.#refitOf(fields['refit']))
    this.#drain(
      new Set(
        Object.entries(fields).flatMap(([name, value]) =>
          name.startsWith(DRAIN) && value === '1' ? name.slice(DRAIN.length) : [],
        ),
      ),
    )
    return problems
  }

  /** Also workers that are not here yet. */
  #drain(workers: ReadonlySet<string>): void {
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

  async #artifact(field: string | undefined): Promise<void> {
    if (field === undefined) return
    const wanted = sharedArtifactIn(field)
    if (wanted === undefined) throw new Error('what stands in the store cannot be read')
    if (wanted.sha256 !== this.#options.control.view().artifact?.sha256)
      await this.#options.artifacts.take(wanted)
  }

  #policy({ policy, tau, prefillPolicy }: Fields): void {
    const { control } = this.#options
    const now = control.view()
    const number = tau === undefined || tau === '' ? undefined : Number(tau)
    const wanted: PolicyChange = {
      ...(isOne(POLICIES, policy) && policy !== now.policy && { policy }),
      ...(number !== undefined && number >= 0 && number <= MAX_TAU && number !== now.tau && { tau: number }),
      ...(isOne(PREFILL_POLICIES, prefillPolicy) && prefillPolicy !== now.prefillPolicy && { prefillPolicy }),
    }
    if (Object.keys(wanted).length > 0) control.setPolicy(wanted)
  }

  async #refitOf(field: string | undefined): Promise<void> {
    if (field === undefined || field === '' || field === this.#refit) return
    const clusters = Number(field.split(' ')[0])
    if (!Number.isSafeInteger(clusters) || clusters < 1)
      throw new Error('what stands in the store cannot be read')
    this.#refit = field // once, whatever comes of it
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
