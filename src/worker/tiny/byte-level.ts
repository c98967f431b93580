/** How GPT-2's tokenizers write bytes as text: printable ones of Latin-1 as themselves, the others as characters from U+0100 on. */

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

/** Undefined when a character stands for no byte. */
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
 * GPT-2's words: English endings, a run of letters, of digits or of signs with a space before it, runs of white space less the last one
 * before a word. White space is Unicode's, as in the tokenizers library: JavaScript's \s counts U+FEFF and not U+0085.
 */
export const WORD =
  /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu
