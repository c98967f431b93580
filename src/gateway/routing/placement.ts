/** A request on a worker, from the decision to its end. */
import type { Dispatch } from '../../cluster/registry.ts'
import type { WorkerSpec } from '../../cluster/worker.ts'
import type { Decision } from '../../policy/decode-policy.ts'
import type { DecisionRecord } from '../observe/decision-log.ts'
import type { ConversationStep } from '../observe/request-observer.ts'

/** `ignored`: the request ended, and the worker is not to blame. */
export type PlacementEnd = 'succeeded' | 'failed' | 'ignored'

/** A request on a worker: it counts as load from the decision until `end`. */
export interface Placement {
  readonly worker: WorkerSpec
  readonly index: number
  /**
   * Gives the request back: load, breaker and policy state follow from it. Later calls do nothing.
   */
  end(how: PlacementEnd, seen?: SeenOfWorker): void
}

/** What the end of a request says about its worker. */
export interface SeenOfWorker {
  /** The worker did not respond; its health is checked at once. */
  readonly unreachable?: boolean
  /** Mean time between the tokens of a stream that ended well and was long enough to tell. */
  readonly tokenUs?: number
  /** Tokens of the response, which are in its KV cache. */
  readonly tokens?: number
  /** Of a turn that skipped the remote prefill: tokens of its prompt that the worker computed. */
  readonly computedTokens?: number | undefined
  /** From the request to the first token of a stream. */
  readonly firstTokenMs?: number | undefined
}

export interface DecodePlacement extends Placement {
  readonly decision: Decision
  /** The policy that decided. */
  readonly policy: string
  /** Cosine to the centroid of the worker; undefined if the policy did not compare. */
  readonly similarity: number | undefined
  /** Share of the prompt covered by counts. */
  readonly covered: number | undefined
  /** Undefined for a request that continues no known conversation. */
  readonly conversation: ConversationStep | undefined
  /** Absent if there is no reader for it. */
  readonly record?: DecisionRecord
}

interface Follows {
  /** Takes the request out of the policy's state. */
  readonly left?: (how: PlacementEnd, seen: SeenOfWorker) => void
  readonly unreachable?: ((worker: string) => void) | undefined
}

/** A placement of this process: a dispatch of the registry, and what follows from its end. */
export class DispatchPlacement implements Placement {
  readonly #dispatch: Dispatch
  readonly #follows: Follows
  #ended = false

  constructor(dispatch: Dispatch, follows: Follows = {}) {
    this.#dispatch = dispatch
    this.#follows = follows
  }

  get worker(): WorkerSpec {
    return this.#dispatch.worker
  }

  get index(): number {
    return this.#dispatch.index
  }

  end(how: PlacementEnd, seen: SeenOfWorker = {}): void {
    if (this.#ended) return
    this.#ended = true
    if (how === 'ignored') this.#dispatch.ignored()
    else this.#dispatch[how](performance.now())
    // What was seen of a removed worker says nothing about the one that has its place.
    if (this.#dispatch.isCurrent()) this.#follows.left?.(how, seen)
    else this.#follows.left?.('ignored', {})
    if (seen.unreachable) this.#follows.unreachable?.(this.worker.id)
  }
}

type Decided = Omit<DecodePlacement, keyof Placement>

export class DecidedPlacement extends DispatchPlacement implements DecodePlacement {
  readonly decision: Decision
  readonly policy: string
  readonly similarity: number | undefined
  readonly covered: number | undefined
  readonly conversation: ConversationStep | undefined
  readonly record: DecisionRecord | undefined

  constructor(dispatch: Dispatch, follows: Follows, decided: Decided) {
    super(dispatch, follows)
    this.decision = decided.decision
    this.policy = decided.policy
    this.similarity = decided.similarity
    this.covered = decided.covered
    this.conversation = decided.conversation
    this.record = decided.record
  }
}
