/**
 * GPT-2’s text form of bytes: printable Latin-1 characters as themselves, the others as characters from
 * U+0100 on.
 */

const CHARACTERS = charactersOfBytes()
const BYTES: ReadonlyMap<string, number> = new Map(CHARACTERS.map((character, byte) => [character, byte]))

function charactersOfBytes(): string[] {
  const isPlain = (byte: number) =>
    (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae
  let others = 0
  return Array.from({ length: 256 }, (_, byte) =>
    String.fromCharCode(isPlain(byte) ? byte : 0x100 + others++),
  )
}

export function characterOfByte(byte: number): string {
  return CHARACTERS[byte]!
}

/** Undefined if a character represents no byte. */
export function bytesOfToken(text: string): Uint8Array | undefined {
  const bytes = new Uint8Array(text.length)
  for (let i = 0; i < text.length; i++) {
    const byte = BYTES.get(text[i]!)
    if (byte === undefined) return undefined
    bytes[i] = byte
  }
  return bytes
}

/**
 * GPT-2’s word split: English endings, a run of letters, digits or symbols with an optional leading space,
 * and runs of white space except the last one before a word. White space is Unicode’s, as in the tokenizers
 * library: JavaScript’s \s includes U+FEFF but not U+0085.
 */
export const WORD =
  /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu
