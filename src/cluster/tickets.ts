import type { Role } from './worker.ts'

/** One request on one worker: taken at the decision, released when the request ends there in any way. */
export interface Ticket {
  readonly worker: string
  readonly leg: Role
  /** An integer, so that adding and subtracting ends at exactly zero. */
  readonly tokens: number
  readonly takenMs: number
  /** Takes effect once; a second call is counted, since it is a bug of the caller. */
  release(): void
}

export interface Load {
  readonly inflight: number
  readonly tokens: number
}

export const IDLE: Load = { inflight: 0, tokens: 0 }

type Account = Record<Role, { inflight: number; tokens: number }>

/**
 * Load of every worker: what was dispatched to it and has not ended. Never a polled number, which would be
 * stale when used. Tickets hold the account they were taken from, so that one of a former worker of the same
 * name cannot affect the next.
 */
export class LoadTracker {
  readonly #accounts = new Map<string, Account>()
  readonly #live = new Set<Ticket>()
  readonly #totals = emptyAccount()
  #doubleReleases = 0
  /** Load of other gateways on a worker, if they share their loads; not tickets of this gateway. */
  elsewhere: (worker: string, leg: Role) => Load = () => IDLE
  /** Called after every ticket that is taken or released; must not throw. */
  onChange: () => void = () => {}
  #leaked = 0

  /** `onRelease` runs once, for the request's end or for the janitor. */
  take(worker: string, leg: Role, tokens: number, nowMs: number, onRelease?: () => void): Ticket {
    let account = this.#accounts.get(worker)
    if (account === undefined) this.#accounts.set(worker, (account = emptyAccount()))
    const release = () => {
      if (!this.#live.delete(ticket)) {
        this.#doubleReleases++
        return
      }
      move(account, leg, -1, -tokens)
      move(this.#totals, leg, -1, -tokens)
      onRelease?.()
      this.onChange()
    }
    const ticket: Ticket = { worker, leg, tokens, takenMs: nowMs, release }
    this.#live.add(ticket)
    move(account, leg, 1, tokens)
    move(this.#totals, leg, 1, tokens)
    this.onChange()
    return ticket
  }

  inflight(worker: string, leg: Role): number {
    return this.#accounts.get(worker)?.[leg].inflight ?? 0
  }

  tokens(worker: string, leg: Role): number {
    return this.#accounts.get(worker)?.[leg].tokens ?? 0
  }

  /** Workers that have tickets, with their load. */
  *loads(): Generator<{ readonly worker: string; readonly leg: Role } & Load> {
    for (const [worker, account] of this.#accounts)
      for (const leg of ['prefill', 'decode'] as const)
        if (account[leg].inflight > 0) yield { worker, leg, ...account[leg] }
  }

  /** Over all workers, including removed ones that still have tickets. */
  total(leg: Role): Load {
    return { ...this.#totals[leg] }
  }

  /** When the oldest live ticket was taken; undefined if there is none. */
  get oldestMs(): number | undefined {
    for (const { takenMs } of this.#live) return takenMs
    return undefined
  }

  /**
   * The next ticket under this name belongs to another worker: its load starts at zero, and live tickets
   * count for the old one.
   */
  retire(worker: string): void {
    this.#accounts.delete(worker)
  }

  /**
   * The janitor: releases tickets older than any request may be, and returns them. There should be none; each
   * one is a bug.
   */
  findLeaks(nowMs: number, olderThanMs: number): readonly Ticket[] {
    const leaks = [...this.#live].filter(({ takenMs }) => nowMs - takenMs > olderThanMs)
    this.#leaked += leaks.length
    for (const leak of leaks) leak.release()
    return leaks
  }

  get leaked(): number {
    return this.#leaked
  }

  get doubleReleases(): number {
    return this.#doubleReleases
  }
}

const emptyAccount = (): Account => ({
  prefill: { inflight: 0, tokens: 0 },
  decode: { inflight: 0, tokens: 0 },
})

function move(account: Account, leg: Role, requests: number, tokens: number): void {
  account[leg].inflight += requests
  account[leg].tokens += tokens
}
