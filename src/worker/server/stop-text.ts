/**
 * Looks for stop strings in text that comes in pieces. What might be the beginning of one is held back until it is known not to be; a
 * stop string is not passed on unless that is asked for, and nothing after it is.
 */
export interface StopPiece {
  /** Text that may be passed on. */
  readonly text: string
  /** The stop string that was found. */
  readonly stop?: string
}

export class StopText {
  readonly #stops: readonly string[]
  readonly #include: boolean
  readonly #longest: number
  /** Seen and not passed on; always shorter than the longest stop string. */
  #held = ''

  constructor(stops: readonly string[], include = false) {
    this.#stops = stops
    this.#include = include
    this.#longest = stops.reduce((most, { length }) => Math.max(most, length), 0)
  }

  /** `search` is false while so few tokens have come that the request must go on whatever they say; such text is held all the same. */
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

  /** What is still held back, when no more comes. */
  rest(): string {
    const held = this.#held
    this.#held = ''
    return held
  }

  /** The one that begins first; of those that begin together the one that was named first. */
  #first(text: string): { at: number; stop: string } | undefined {
    let first: { at: number; stop: string } | undefined
    for (const stop of this.#stops) {
      const at = text.indexOf(stop)
      if (at >= 0 && (first === undefined || at < first.at)) first = { at, stop }
    }
    return first
  }

  /** Length of the longest end of the text that a stop string begins with, not a whole one. */
  #heldLength(text: string): number {
    for (let length = Math.min(text.length, this.#longest - 1); length > 0; length--) {
      const end = text.slice(text.length - length)
      if (this.#stops.some(stop => stop.length > length && stop.startsWith(end))) return length
    }
    return 0
  }
}
