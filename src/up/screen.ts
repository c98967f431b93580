/** A block of lines that is drawn anew in its place, with a log above it that scrolls. Elsewhere than on a terminal there is the log alone. */
import { columnsOf, type Terminal } from '../report/terminal.ts'

export class Screen {
  readonly #terminal: Terminal
  readonly #rows: () => number
  #lines: readonly string[] = []

  /** `rows`: of the window now. */
  constructor(terminal: Terminal, rows: () => number) {
    this.#terminal = terminal
    this.#rows = rows
  }

  get isLive(): boolean {
    return this.#terminal.live
  }

  /** Replaces the block. What does not fit into the window is left out, from below: what wraps or scrolls away cannot be drawn over. */
  draw(lines: readonly string[]): void {
    if (!this.isLive) return
    const shown = lines
      .slice(0, Math.max(1, this.#rows() - 1))
      .filter(line => columnsOf(line) <= this.#terminal.width)
    this.#terminal.write(`${this.#erased()}${shown.map(line => `${line}\n`).join('')}`)
    this.#lines = shown
  }

  /** A line that stays, above the block. */
  log(line: string): void {
    const block = this.#lines
    this.#terminal.write(`${this.#erased()}${line}\n${block.map(each => `${each}\n`).join('')}`)
  }

  /** The block stays as it is; what comes next comes below it. */
  leave(): void {
    this.#lines = []
  }

  #erased(): string {
    return this.#lines.length === 0 ? '' : `\u001b[${this.#lines.length}A\u001b[0J`
  }
}
