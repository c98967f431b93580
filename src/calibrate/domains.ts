/** Domain names in order of first occurrence. In a trace either every request has a domain or none has. */
import { EldrError } from '../errors.ts'

/** Domain of requests without a name, if others have one. */
const NONE = 'none'
/** An index is one byte. */
const MAX_DOMAINS = 256

export class Domains {
  readonly #indices = new Map<string, number>()
  readonly #file: string
  #unnamed = false

  constructor(file: string) {
    this.#file = file
  }

  /** −1 without a name. */
  indexOf(name: string | undefined): number {
    if (name === undefined) {
      this.#unnamed = true
      return -1
    }
    const known = this.#indices.get(name)
    if (known !== undefined) return known
    if (this.#indices.size === MAX_DOMAINS - 1) {
      const found = `${MAX_DOMAINS} different domains`
      throw new EldrError('ELDR_FILE_WRONG_KIND', {
        file: this.#file,
        found,
        expected: `at most ${MAX_DOMAINS - 1}`,
        todo: 'Use broader names.',
      })
    }
    this.#indices.set(name, this.#indices.size)
    return this.#indices.size - 1
  }

  /** Names for the trace; empty if no request has a domain. */
  names(): string[] {
    const names = [...this.#indices.keys()]
    return names.length > 0 && this.#unnamed && !names.includes(NONE) ? [...names, NONE] : names
  }

  /** Index for the trace, from the result of `indexOf`. */
  final(index: number): number {
    if (index >= 0) return index
    return this.#indices.get(NONE) ?? this.#indices.size
  }
}
