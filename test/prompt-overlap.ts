/** What two prompts have in common: whole sentences, and 5-grams. */
interface Text {
  readonly id: string
  readonly domain: string
  readonly prompt: string
}

/** Written without spaces, or with spaces that say little: counted by characters. */
const BY_CHARACTER = new Set(['zh', 'ja', 'ko'])
const NEAR = 0.2

const wordsOf = (text: string) => text.toLowerCase().match(/[\p{L}\p{M}\p{N}]+/gu) ?? []

/**
 * Lines of code count as sentences too. Han and kana have no spaces between words, so what is left of a
 * sentence is one text.
 */
function sentencesOf({ domain, prompt }: Text): string[] {
  return prompt.split(/[.!?…。！？\n]+/u).flatMap(sentence => {
    const words = wordsOf(sentence)
    if (domain !== 'zh' && domain !== 'ja') return words.length >= 5 ? [words.join(' ')] : []
    const text = words.join('')
    return text.length >= 12 ? [text] : []
  })
}

/** [first, second, sentence] for every sentence that two prompts have. */
export function sharedSentences(texts: readonly Text[]): [string, string, string][] {
  const ownerOf = new Map<string, string>()
  const shared: [string, string, string][] = []
  for (const text of texts)
    for (const sentence of new Set(sentencesOf(text))) {
      const owner = ownerOf.get(sentence)
      if (owner === undefined) ownerOf.set(sentence, text.id)
      else shared.push([owner, text.id, sentence])
    }
  return shared
}

function fiveGramsOf({ domain, prompt }: Text): Set<string> {
  const words = wordsOf(prompt)
  const units = BY_CHARACTER.has(domain) ? [...words.join('')] : words
  return new Set(
    Array.from({ length: Math.max(0, units.length - 4) }, (_, at) => units.slice(at, at + 5).join(' ')),
  )
}

/** Ids of prompts that share more than a fifth of their 5-grams (Jaccard) with another. */
export function nearDuplicates(texts: readonly Text[]): Set<string> {
  const grams = texts.map(fiveGramsOf)
  const near = new Set<string>()
  for (let one = 0; one < texts.length; one++)
    for (let other = 0; other < one; other++) {
      let common = 0
      for (const gram of grams[one]!) if (grams[other]!.has(gram)) common++
      if (common <= NEAR * (grams[one]!.size + grams[other]!.size - common)) continue
      near.add(texts[one]!.id).add(texts[other]!.id)
    }
  return near
}
