/**
 * Publishes decisions and changes of workers and routing to followers. Nothing waits for a slow follower. An
 * event is serialized once for all followers, and not at all without any.
 */
import type { DecisionRecord } from './decision-log.ts'
import type { DecisionFollower } from './decisions.ts'

export type EventKind = 'decision' | 'worker' | 'routing' | 'adapt'

export type Follower = (event: string) => void

/** Each follower adds a little work to every decision. */
export const MAX_FOLLOWERS = 32

export class Events implements DecisionFollower {
  readonly #followers = new Set<Follower>()
  #number = 0

  get isActive(): boolean {
    return this.#followers.size > 0
  }

  decided(record: DecisionRecord): void {
    this.publish('decision', record)
  }

  publish(kind: EventKind, data: object): void {
    if (!this.isActive) return
    // JSON.stringify writes no newlines, so one data line holds the event. NaN becomes null.
    const event = `id: ${++this.#number}\nevent: ${kind}\ndata: ${JSON.stringify(data)}\n\n`
    for (const follower of this.#followers) follower(event)
  }

  /** @returns a function that stops it, or undefined if there are too many followers. */
  follow(follower: Follower, max = MAX_FOLLOWERS): (() => void) | undefined {
    if (this.#followers.size >= max) return undefined
    this.#followers.add(follower)
    return () => void this.#followers.delete(follower)
  }
}
