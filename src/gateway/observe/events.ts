/**
 * What happens in the gateway, for those who follow it: decisions, changes of workers, of routing. Followers come and go and may be slow;
 * nothing waits for them. An event is written down once, whoever reads it, and not at all for nobody.
 */
import type { DecisionRecord } from './decision-log.ts'
import type { DecisionFollower } from './decisions.ts'

export type EventKind = 'decision' | 'worker' | 'routing'

export type Follower = (event: string) => void

/** Each costs a little at every decision. */
export const MAX_FOLLOWERS = 32

export class Events implements DecisionFollower {
  readonly #followers = new Set<Follower>()
  #number = 0

  get any(): boolean {
    return this.#followers.size > 0
  }

  decided(record: DecisionRecord): void {
    this.publish('decision', record)
  }

  publish(kind: EventKind, data: object): void {
    if (!this.any) return
    // JSON has no newlines of its own, so one line holds it. What is no number is null there.
    const event = `id: ${++this.#number}\nevent: ${kind}\ndata: ${JSON.stringify(data)}\n\n`
    for (const follower of this.#followers) follower(event)
  }

  /** Undefined when there are too many. Otherwise the way to stop. */
  follow(follower: Follower, most = MAX_FOLLOWERS): (() => void) | undefined {
    if (this.#followers.size >= most) return undefined
    this.#followers.add(follower)
    return () => void this.#followers.delete(follower)
  }
}
