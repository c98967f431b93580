/** Names of domains in the order in which they first occur; every request of a trace has one, or none has. */
import { EldrError } from '../errors.ts'

/** Of requests without a name, where others have one. */
const NONE = 'none'
/** An index is a byte. */
const MOST = 256

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
    if (this.#indices.size === MOST - 1) {
      const found = `${MOST} different domains`
      throw new EldrError('ELDR_FILE_WRONG_KIND', {
        file: this.#file,
        found,
        expected: `at most ${MOST - 1}`,
        todo: 'Use broader names.',
      })
    }
    this.#indices.set(name, this.#indices.size)
    return this.#indices.size - 1
  }

  /** For a trace; empty when no request has one. */
  names(): string[] {
    const names = [...this.#indices.keys()]
    return names.length > 0 && this.#unnamed && !names.includes(NONE) ? [...names, NONE] : names
  }

  /** Of a request, by what `indexOf` gave for it. */
  final(index: number): number {
    if (index >= 0) return index
    return this.#indices.get(NONE) ?? this.#indices.size
  }
}
