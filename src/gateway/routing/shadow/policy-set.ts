/**
 * The shadow policies of one phase of work and the estimate of steps that judges them, with their state. A
 * policy that throws may be left with half a change: it is out for good, and the others go on.
 */
import { missingFor } from '../../../policy/create-policy.ts'
import {
  type DecodePolicy,
  descriptorOf,
  type PolicyDescriptor,
  type PolicyName,
  type RoutableRequest,
} from '../../../policy/decode-policy.ts'
import { createStepJudge, type StepJudge } from '../../../policy/step-judge.ts'
import { DEFAULT_COST } from '../../../policy/union.ts'
import type { Shape } from '../read-experts.ts'
import { predictorFor, tablePolicy, type TablePolicyOptions } from '../table-policy.ts'

export interface PolicySetOptions {
  readonly policies: readonly (PolicyName | PolicyDescriptor)[]
  /** What the table's own policy is made from. */
  readonly table: TablePolicyOptions
  /** Undefined until the shape of the model is known. */
  readonly shape: Shape | undefined
  readonly failed: (policy: string, error: unknown) => void
}

/** What policies lack, by name. */
export function missingIn({ policies, table, shape }: PolicySetOptions): Map<string, string> {
  const missing = policies.map(
    policy => [descriptorOf(policy).name, missingFor(policy, { ...table, shape })?.words] as const,
  )
  return new Map(missing.flatMap(([name, words]) => (words === undefined ? [] : [[name, words] as const])))
}

export class PolicySet {
  /** Undefined without the shape of the model. */
  judge: StepJudge | undefined
  readonly #failed: PolicySetOptions['failed']
  #policies: { readonly name: string; readonly policy: DecodePolicy }[] = []

  /** Policies that lack something are left out. */
  constructor({ policies, table, shape, failed }: PolicySetOptions) {
    const { workers, cost = DEFAULT_COST } = table
    const predictor = shape && (table.predictor ?? predictorFor({ ...table, shape }))
    this.#failed = failed
    for (const policy of policies) {
      const own = { ...table, shape, policy, predictor, withoutCosines: true }
      if (missingFor(policy, own) === undefined)
        this.#guard(descriptorOf(policy).name, name =>
          this.#policies.push({ name, policy: tablePolicy(own) }),
        )
    }
    this.judge = predictor && createStepJudge({ workers, layers: shape.layers, predictor, cost })
  }

  get isEmpty(): boolean {
    return this.#policies.length === 0
  }

  each(tell: (policy: DecodePolicy, name: string) => void): void {
    for (const { name, policy } of this.#policies) this.#guard(name, () => tell(policy, name))
  }

  judged<T>(ask: (judge: StepJudge) => T): T | undefined {
    const { judge } = this
    if (judge === undefined) return undefined
    try {
      return ask(judge)
    } catch (error) {
      this.judge = undefined
      this.#failed('the estimate of steps', error)
      return undefined
    }
  }

  dispatched(request: RoutableRequest, worker: number): void {
    this.judged(judge => judge.dispatched(request, worker))
    this.each(policy => policy.dispatched?.(request, worker))
  }

  released(request: RoutableRequest, worker: number): void {
    this.judged(judge => judge.released(request, worker))
    this.each(policy => policy.released?.(request, worker))
  }

  #guard(name: string, work: (name: string) => void): void {
    try {
      work(name)
    } catch (error) {
      this.#policies = this.#policies.filter(each => each.name !== name)
      this.#failed(name, error)
    }
  }
}
