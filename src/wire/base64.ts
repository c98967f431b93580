/** Length of the base64 text of `bytes` bytes, including padding. */
export const base64Length = (bytes: number): number => 4 * Math.ceil(bytes / 3)

/**
 * Decodes base64 into `out`; true if `text` is exactly the canonical encoding of `out`. Node's decoder skips
 * invalid characters, accepts the URL alphabet and even maps letters beyond Latin-1. Encoding the result
 * again and comparing takes 1 µs for 16 KiB; a regular expression over the text takes 20.
 */
export function decodeBase64(text: string, out: Uint8Array): boolean {
  if (text.length !== base64Length(out.length)) return false
  const bytes = Buffer.from(out.buffer, out.byteOffset, out.length)
  return bytes.write(text, 'base64') === out.length && bytes.toString('base64') === text
}
