/** Byte-level BPE as described by `tokenizer.json`, by repeatedly merging the best pair: slow and simple. */
import { readFileSync } from 'node:fs'

/** The regular expression of the byte-level pre-tokenizer. */
const PIECES = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu

/** One character per byte: printable ones represent themselves, the others follow from U+0100 on. */
function characterOfByte(): string[] {
  const printable = (byte: number) =>
    (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae
  let unprintable = 0
  return Array.from({ length: 256 }, (_, byte) =>
    String.fromCharCode(printable(byte) ? byte : 0x100 + unprintable++),
  )
}

/** Encodes ordinary text; does not look for special tokens. */
export function bytePairs(tokenizerFile: URL): (text: string) => number[] {
  const { model } = JSON.parse(readFileSync(tokenizerFile, 'utf8')) as {
    model: { vocab: Record<string, number>; merges: [string, string][] }
  }
  const rankOf = new Map(model.merges.map(([left, right], rank) => [`${left} ${right}`, rank]))
  const characters = characterOfByte()
  const rankAt = (parts: readonly string[], at: number) =>
    rankOf.get(`${parts[at]} ${parts[at + 1]}`) ?? Infinity

  const idsOfPiece = (piece: string): number[] => {
    const parts = Array.from(Buffer.from(piece, 'utf8'), byte => characters[byte]!)
    for (;;) {
      let best = -1
      for (let at = 0; at + 1 < parts.length; at++)
        if (rankAt(parts, at) < (best < 0 ? Infinity : rankAt(parts, best))) best = at
      if (best < 0) return parts.map(part => model.vocab[part]!)
      parts.splice(best, 2, parts[best]! + parts[best + 1]!)
    }
  }
  return text => (text.match(PIECES) ?? []).flatMap(idsOfPiece)
}
