/** Length of the base64 text of so many bytes, padding included. */
export const base64Length = (bytes: number): number => 4 * Math.ceil(bytes / 3)

/**
 * Base64 into `out`, and true when `text` is exactly how `out` is written. Node's own decoder skips what it does not know, takes the
 * URL alphabet and even letters beyond Latin-1 for others; to encode the result again and compare costs 1 µs for 16 KiB, and a regular
 * expression over the text 20.
 */
export function decodeBase64(text: string, out: Uint8Array): boolean {
  if (text.length !== base64Length(out.length)) return false
  const bytes = Buffer.from(out.buffer, out.byteOffset, out.length)
  return bytes.write(text, 'base64') === out.length && bytes.toString('base64') === text
}
