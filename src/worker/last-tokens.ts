/** Longest UTF-8 character. */
const CHARACTER_BYTES = 4

/** The last tokens of a prompt that together have the bytes of a character: it may end inside one. */
export function lastTokens(ids: ArrayLike<number>, bytesOf: (id: number) => number): number[] {
  let from = ids.length
  for (let bytes = 0; from > 0 && bytes < CHARACTER_BYTES; from--) bytes += bytesOf(ids[from - 1]!)
  return Array.from({ length: ids.length - from }, (_, i) => ids[from + i]!)
}
