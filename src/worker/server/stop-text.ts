/**
 * Searches streamed text for stop strings. Text that may be the start of a stop string is held back. The stop
 * string itself is emitted only if requested, and nothing after it.
 */
export interface StopPiece {
  /** Text that may be emitted. */
  readonly text: string
  /** The stop string that was found. */
  readonly stop?: string
}

export class StopText {
  readonly #stops: readonly string[]
  readonly #include: boolean
  readonly #longest: number
  /** Received and not emitted; always shorter than the longest stop string. */
  #held = ''

  constructor(stops: readonly string[], include = false) {
    this.#stops = stops
    this.#include = include
    this.#longest = stops.reduce((most, { length }) => Math.max(most, length), 0)
  }

  /**
   * `search` is false while fewer than `min_tokens` tokens were generated; text is held back all the same.
   */
  push(piece: string, search = true): StopPiece {
    if (this.#longest === 0) return { text: piece }
    const text = this.#held + piece
    const found = search ? this.#first(text) : undefined
    if (found !== undefined) {
      this.#held = ''
      return {
        text: text.slice(0, this.#include ? found.at + found.stop.length : found.at),
        stop: found.stop,
      }
    }
    const held = this.#heldLength(text)
    this.#held = text.slice(text.length - held)
    return { text: text.slice(0, text.length - held) }
  }

  /** The held-back text, when no more follows. */
  rest(): string {
    const held = this.#held
    this.#held = ''
    return held
  }

  /** The earliest match; among matches at the same position the first in the list. */
  #first(text: string): { at: number; stop: string } | undefined {
    let first: { at: number; stop: string } | undefined
    for (const stop of this.#stops) {
      const at = text.indexOf(stop)
      if (at >= 0 && (first === undefined || at < first.at)) first = { at, stop }
    }
    return first
  }

  /** Length of the longest suffix of the text that is a proper prefix of a stop string. */
  #heldLength(text: string): number {
    for (let length = Math.min(text.length, this.#longest - 1); length > 0; length--) {
      const end = text.slice(text.length - length)
      if (this.#stops.some(stop => stop.length > length && stop.startsWith(end))) return length
    }
    return 0
  }
}
