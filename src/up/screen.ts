/**
 * A block of lines that is redrawn in place, below a scrolling log. Without a terminal there is only the log.
 */
import { columnsOf, type Terminal } from '../report/terminal.ts'

export class Screen {
  readonly #terminal: Terminal
  readonly #rows: () => number
  #lines: readonly string[] = []

  /** `rows`: current height of the window. */
  constructor(terminal: Terminal, rows: () => number) {
    this.#terminal = terminal
    this.#rows = rows
  }

  get isLive(): boolean {
    return this.#terminal.live
  }

  /**
   * Replaces the block. Lines that do not fit are left out, from the bottom: wrapped or scrolled lines cannot
   * be overwritten.
   */
  draw(lines: readonly string[]): void {
    if (!this.isLive) return
    const shown = lines
      .slice(0, Math.max(1, this.#rows() - 1))
      .filter(line => columnsOf(line) <= this.#terminal.width)
    this.#terminal.write(`${this.#erased()}${shown.map(line => `${line}\n`).join('')}`)
    this.#lines = shown
  }

  /** Prints a permanent line above the block. */
  log(line: string): void {
    const block = this.#lines
    this.#terminal.write(`${this.#erased()}${line}\n${block.map(each => `${each}\n`).join('')}`)
  }

  /** Leaves the block as it is; later output goes below it. */
  leave(): void {
    this.#lines = []
  }

  #erased(): string {
    return this.#lines.length === 0 ? '' : `\u001b[${this.#lines.length}A\u001b[0J`
  }
}
