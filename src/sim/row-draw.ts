/**
 * Which recorded request comes next. In shuffled passes each row comes once before any repeats, and none is
 * drawn while it is in flight if another is free: two copies of a request on one worker would share all their
 * experts, which real requests do not. The order depends on the seed alone (a row in flight only lets later
 * ones go first), so policies are compared on the same requests.
 */
import type { Random } from '../math/random.ts'

export interface RowDraw {
  take(): number
  /** The request that replayed the row has ended. */
  release(row: number): void
}

/** Or the rows themselves, in order, starting over after the last: to reproduce another simulator's run. */
export type DrawMode = 'passes' | 'replacement' | Int32Array

/** A row of one pass returns in the next at least this share of the rows later. */
const APART = 3 / 4

export function createRowDraw(mode: DrawMode, rows: number, random: Random): RowDraw {
  if (mode === 'passes') return passes(rows, random)
  let taken = 0
  return {
    take: () => (mode === 'replacement' ? random.below(rows) : mode[taken++ % mode.length]!),
    release: () => {},
  }
}

function passes(rows: number, random: Random): RowDraw {
  const inflight = new Int32Array(rows)
  let idle = rows
  const pass = Int32Array.from({ length: rows }, (_, row) => row)
  shuffle(pass, random)
  /** This pass and the next, so that there are rows to go first at the end of a pass. */
  const coming = new Int32Array(2 * rows)
  coming.set(pass)
  let passesMade = 1
  let next = 0

  function makePass(): void {
    // Blocks of a quarter keep their position and are shuffled inside; in every other pass they begin half a
    // block later, so that rows mix.
    const block = Math.max(1, Math.floor(rows * (1 - APART)))
    const shift = passesMade++ % 2 === 0 ? 0 : Math.floor(block / 2)
    for (let from = shift - block; from < rows; from += block)
      shuffle(pass.subarray(Math.max(0, from), Math.max(0, from + block)), random)
    coming.set(pass, rows)
  }
  makePass()

  function freeRow(): number {
    let at = idle > 0 ? next : coming.length // with none free there is nothing to look for
    while (at < coming.length && inflight[coming[at]!]! > 0) at++
    if (at === coming.length) {
      // The remaining ones may all be in flight while one that came early is free: then it comes again.
      const early = idle > 0 ? pass.find(row => inflight[row] === 0) : undefined
      if (early !== undefined) return early
      at = next
    }
    const row = coming[at]!
    coming.copyWithin(next + 1, next, at)
    next++
    return row
  }

  return {
    take() {
      if (next === rows) {
        coming.copyWithin(0, rows)
        makePass()
        next = 0
      }
      const row = freeRow()
      if (inflight[row]!++ === 0) idle--
      return row
    },
    release(row) {
      if (--inflight[row]! === 0) idle++
    },
  }
}

function shuffle(rows: Int32Array, random: Random): void {
  for (let i = rows.length - 1; i > 0; i--) {
    const j = random.below(i + 1)
    const kept = rows[i]!
    rows[i] = rows[j]!
    rows[j] = kept
  }
}
