/**
 * Keys and values of the replay back end: 64 bits per token that depend on every token up to it. The next
 * text and experts are derived from them alone, so a block with wrong content shows in the output, as with a
 * real model.
 */

/**
 * Writes the fingerprint of token `id` to `out` at `at`. It follows the fingerprint in `from` at `before`.
 * Both arrays hold [low, high] pairs.
 */
export function follow(from: Uint32Array, before: number, id: number, out: Uint32Array, at: number): void {
  let low = Math.imul(from[before]! ^ id, 0x9e3779b1)
  let high = from[before + 1]!
  low ^= low >>> 15
  high = Math.imul(high ^ low, 0x85ebca6b)
  high ^= high >>> 13
  low = Math.imul((low + high) | 0, 0xc2b2ae35)
  low ^= low >>> 16
  high = Math.imul((high + id) | 0, 0x27d4eb2f) ^ low
  out[at] = low
  out[at + 1] = high ^ (high >>> 15)
}

/** The fingerprint before the first token. */
export function rootOf(text: string): Uint32Array {
  const root = Uint32Array.of(0x6a09e667, 0xbb67ae85)
  for (let i = 0; i < text.length; i++) follow(root, 0, text.charCodeAt(i), root, 0)
  return root
}

/** 32 bits derived from a fingerprint and a label; different labels give independent values. */
export function drawBits(low: number, high: number, label: number): number {
  let bits = Math.imul(label + 1, 0x9e3779b1) ^ low
  bits = Math.imul(bits ^ (bits >>> 16), 0x21f0aaad) ^ high
  bits = Math.imul(bits ^ (bits >>> 15), 0x735a2d97)
  return (bits ^ (bits >>> 15)) >>> 0
}
